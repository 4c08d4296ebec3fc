// SPDX-License-Identifier: Apache-2.0

// Package medium has the kinds of storage that an image can be on, and their addresses.
package medium

import (
	"slices"
	"strings"
)

// Kind is a kind of storage, described by the properties that decide what a program may do with an
// image there.
type Kind struct {
	// Name names an image of this kind in messages, with its article.
	Name string
	// Path: the image has a path in the file tree of a host, which libvirt and the kernel take.
	// Images of other kinds have an address.
	Path bool
	// Scheme begins the addresses of this kind, and only these; empty for a path.
	Scheme string
	// Protocol is libvirt's name of the protocol of an address; empty for a path.
	Protocol string
	// Remote: the address means the same image on all hosts.
	Remote bool
	// Filesystem: the image is a file. It has rights and attributes, and its filesystem gives it
	// room as it is written.
	Filesystem bool
	// Witnessed: the kernel of a host answers at once which processes have the image open, whether
	// the image was written, and which image it is. For other kinds only a server knows.
	Witnessed bool
	// OwnWrites: the kernel's record of writes lacks the writes of other hosts.
	OwnWrites bool
	// Raw: the image has no format of its own, neither qcow2 nor LUKS.
	Raw bool
	// Deletable: Volferry may delete an image that it has not made.
	Deletable bool
	// Resizable: Volferry makes the image larger, or passes a larger size on to the guest.
	Resizable bool
	// Led: the image may be the source or the destination of a move that the registry leads.
	Led bool
	// Snapshots: the storage makes snapshots (package rbd of the daemon), and reports whether the
	// image was written since a snapshot.
	Snapshots bool
	// Severable: QEMU can end its connection to a server that does not answer.
	Severable bool
	// ClientCache: QEMU caches writes in its own memory, with cache='unsafe' even flushed writes.
	ClientCache bool
	// ServerCache: reads come from the cache of a server, which may still have writes that the
	// server could not store. So a comparison does not prove that an image is stored.
	ServerCache bool

	parse func(path string) error
}

// The protocols of addresses.
const (
	ProtocolNBD = "nbd"
	ProtocolRBD = "rbd"
)

// The kinds of storage. A new kind needs a variable here, an entry in the list addressed if it has
// addresses, and a package of the daemon that opens its images.
var (
	File = Kind{
		Name: "a file", Path: true, Filesystem: true, Witnessed: true, Deletable: true, Resizable: true, Led: true,
	}
	Device = Kind{
		Name: "a block device", Path: true, Witnessed: true, OwnWrites: true, Deletable: true, Resizable: true, Led: true,
	}
	// LocalExport is an export of an NBD server at a Unix socket of the host.
	LocalExport = Kind{Name: "an NBD export", Scheme: NBDScheme, Protocol: ProtocolNBD, Raw: true, Severable: true, ServerCache: true, parse: parseNBD}
	// Export is an export of an NBD server over TCP.
	Export = Kind{Name: "an NBD export", Scheme: NBDTCPScheme, Protocol: ProtocolNBD, Raw: true, Severable: true, ServerCache: true, Remote: true, parse: parseNBD}
	// RBD is an image of a Ceph cluster.
	RBD = Kind{
		Name: "an RBD image", Scheme: RBDScheme, Protocol: ProtocolRBD, Raw: true, Remote: true,
		Snapshots: true, ClientCache: true, parse: parseRBD,
	}
)

var addressed = []Kind{LocalExport, Export, RBD}

// Addressed returns the kinds of storage that have addresses.
func Addressed() []Kind { return slices.Clone(addressed) }

// Of returns the kind of storage at the path of a location. For a path in a file tree it returns
// File, even if the image is a block device; On distinguishes them.
func Of(path string) Kind {
	for _, kind := range addressed {
		if strings.HasPrefix(path, kind.Scheme) {
			return kind
		}
	}
	return File
}

// On is Of for a caller that knows whether the image is a block device.
func On(path string, block bool) Kind {
	kind := Of(path)
	if kind.Path && block {
		return Device
	}
	return kind
}

// Check validates an address of this kind. It accepts every path in a file tree.
func (k Kind) Check(path string) error {
	if k.parse == nil {
		return nil
	}
	return k.parse(path)
}

func parseNBD(path string) error {
	_, err := ParseNBD(path)
	return err
}

func parseRBD(path string) error {
	_, err := ParseRBD(path)
	return err
}
