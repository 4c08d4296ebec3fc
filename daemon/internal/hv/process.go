// SPDX-License-Identifier: Apache-2.0

package hv

import "strconv"

// OpenFile is one open file descriptor of a domain's process on an image, or, for an image of type
// network, one open block node.
type OpenFile struct {
	// Path is the image's path as the caller wrote it.
	Path string
	PID  int // of the process
	FD   int // 0 for an image of type network
	// Node is QEMU's name for an image of type network; empty if QEMU could not be queried.
	Node     string
	Writable bool
}

// Unasked reports whether QEMU could not be queried for the image.
func (f *OpenFile) Unasked() bool { return f.Node == "" && f.FD == 0 }

// Name identifies the descriptor or node within its process.
func (f *OpenFile) Name() string {
	switch {
	case f.Node != "":
		return "block node " + f.Node
	case f.Unasked():
		return "by a process that libvirt does not have"
	}
	return "fd " + strconv.Itoa(f.FD)
}

// Rule is a rule of a security module that denies access to a process.
type Rule struct {
	// File has the rule, and Path is the image in the rule, with links resolved.
	File, Path string
}

// Process identifies the process of an active domain among all processes that ran on this host.
type Process struct {
	ID string
	// Images are the images in the process's start arguments.
	Images []string
	// Kept: the process was started with the present top image of the live disk in question, and
	// has had it open in this disk ever since.
	Kept bool
}

// ProcessUser is a user and its main group by number.
type ProcessUser struct {
	UID uint32
	GID uint32
	// Given: libvirt makes this user the owner of an image before a guest opens it, if the
	// filesystem permits that to root. Otherwise the operator must have given the user access.
	Given bool
}
