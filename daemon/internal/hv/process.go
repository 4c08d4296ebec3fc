// SPDX-License-Identifier: Apache-2.0

package hv

// OpenFile is one open file descriptor of a domain's process on an image.
type OpenFile struct {
	// Path is the image, as the caller names it.
	Path     string
	PID      int // of the process
	FD       int
	Writable bool
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
