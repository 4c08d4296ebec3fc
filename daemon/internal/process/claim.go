// SPDX-License-Identifier: Apache-2.0

package process

// Claim is a QEMU process with a domain's UUID in its command line, which any user can start.
type Claim struct {
	PID int    `json:"pid"`
	UID uint32 `json:"uid"`
	// Ended is true if the process has ended since, so that its open files are unknown.
	Ended bool   `json:"ended,omitempty"`
	Files []File `json:"files,omitempty"`
}

// File is an open descriptor of one of the requested images.
type File struct {
	Image    int  `json:"image"` // its index
	FD       int  `json:"fd"`
	Writable bool `json:"writable,omitempty"`
}
