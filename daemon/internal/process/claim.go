// SPDX-License-Identifier: Apache-2.0

package process

// Claim is a QEMU process that claims to be a domain.
type Claim struct {
	PID int    `json:"pid"`
	UID uint32 `json:"uid"`
	// Ended is true if the process has ended since, so that its open files are unknown.
	Ended bool   `json:"ended,omitempty"`
	Files []File `json:"files,omitempty"`
}

// File is a descriptor on one of the requested images.
type File struct {
	Image    int  `json:"image"` // its index
	FD       int  `json:"fd"`
	Writable bool `json:"writable,omitempty"`
}
