// SPDX-License-Identifier: Apache-2.0

package hv

// OpenFile is one open file descriptor of a domain's process on an image.
type OpenFile struct {
	FD       int
	Writable bool
}

// Process is what tells the process of an active domain from every other one that ran
// on this host.
type Process struct {
	ID string
	// Images are those that it was started with.
	Images []string
	// Kept: the live disk in question has a top image that the process was started with
	// and has had open in this disk ever since.
	Kept bool
}

// ProcessUser is a user and its main group by number.
type ProcessUser struct {
	UID uint32
	GID uint32
	// Given: libvirt makes this user the owner of an image before a guest opens it, where the
	// filesystem lets root do that. If not, the user must have been let in by others.
	Given bool
}
