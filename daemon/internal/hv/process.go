// SPDX-License-Identifier: Apache-2.0

package hv

import "strconv"

// OpenFile is one open file descriptor of a domain's process on an image, or, of an image of the
// type network, what the process has of it.
type OpenFile struct {
	// Path is the image, as the caller names it.
	Path string
	PID  int // of the process
	FD   int // 0 of an image of the type network
	// Node is the name that QEMU has for an image of the type network, empty if it could not be
	// asked.
	Node     string
	Writable bool
}

// Unasked says that the process could not be asked whether it has the image open.
func (f *OpenFile) Unasked() bool { return f.Node == "" && f.FD == 0 }

// Name tells the descriptor, or node, from the others of its process.
func (f *OpenFile) Name() string {
	switch {
	case f.Node != "":
		return "block node " + f.Node
	case f.Unasked():
		return "by a process that libvirt does not have"
	}
	return "fd " + strconv.Itoa(f.FD)
}

// Rule is one by which a security module denies a process something.
type Rule struct {
	// File has the rule, and Path is the image that it names, without links.
	File, Path string
}

// Process tells the process of an active domain from every other process that ran on this
// host.
type Process struct {
	ID string
	// Images are the images that it was started with.
	Images []string
	// Kept: the top image of the live disk in question is one that the process was started
	// with and has had open in this disk ever since.
	Kept bool
}

// ProcessUser is a user and its main group by number.
type ProcessUser struct {
	UID uint32
	GID uint32
	// Given: libvirt makes this user the owner of an image before a guest opens it, if the
	// filesystem lets root do that. Otherwise somebody must have given the user access.
	Given bool
}
