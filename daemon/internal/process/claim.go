// SPDX-License-Identifier: Apache-2.0

package process

// Claim is a QEMU process that claims to be a domain.
type Claim struct {
	PID int    `json:"pid"`
	UID uint32 `json:"uid"`
	// Ended: it has ended since, and what it had open is not known.
	Ended bool   `json:"ended,omitempty"`
	Files []File `json:"files,omitempty"`
}

// File is a descriptor of a process on one of the images that were asked for.
type File struct {
	Image    int  `json:"image"` // which of them
	FD       int  `json:"fd"`
	Writable bool `json:"writable,omitempty"`
}
