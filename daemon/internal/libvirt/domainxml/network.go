// SPDX-License-Identifier: Apache-2.0

package domainxml

import (
	"github.com/beevik/etree"
	"libvirt.org/go/libvirtxml"

	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/medium"
)

// A protocol reads and writes the <source> of images with one kind of address (NBD or RBD).
type protocol interface {
	// check refuses an address that no <source> can express.
	check(address string, clusters rbd.Clusters) error
	// source returns the source at an address that check accepts.
	source(address string, clusters rbd.Clusters) *libvirtxml.DomainDiskSourceNetwork
	// set points a <source> without an image at an address that check accepts.
	set(source *etree.Element, address string, clusters rbd.Clusters)
	// address returns the address of the image in a source, or "" if no address can express it.
	address(src *libvirtxml.DomainDiskSource, clusters rbd.Clusters) string
	// has reports whether a <source> is an image of this protocol without unknown settings in its
	// hosts, which another image would lose.
	has(source *etree.Element) bool
	// keeps reports whether a child of such a <source> stays, or is set again, with another image.
	keeps(child *etree.Element) bool
}

var protocols = map[string]protocol{medium.ProtocolNBD: nbdProtocol{}, medium.ProtocolRBD: rbdProtocol{}}

// protocolAt returns the protocol of an address. For a text that is no address it returns
// nbdProtocol, which refuses the text.
func protocolAt(address string) protocol {
	if p := protocols[medium.Of(address).Protocol]; p != nil {
		return p
	}
	return nbdProtocol{}
}

func protocolIn(source *etree.Element) protocol {
	if p := protocols[source.SelectAttrValue("protocol", "")]; p != nil && p.has(source) {
		return p
	}
	return nil
}

func addressOfSource(src *libvirtxml.DomainDiskSource, clusters rbd.Clusters) string {
	if p := protocols[src.Network.Protocol]; p != nil {
		return p.address(src, clusters)
	}
	return ""
}

var networkAttributes = []string{"protocol", "name", "tls"}
