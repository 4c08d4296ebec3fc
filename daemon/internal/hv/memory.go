// SPDX-License-Identifier: Apache-2.0

package hv

import "context"

// Memory saves the RAM of a domain to a file, and starts a domain from it.
type Memory interface {
	// SaveMemory writes the RAM of an active domain into a new file at path and ends its process.
	// When it returns nil, the domain is off, all its disks are closed and the file is complete.
	// The caller must flush the file. SaveMemory does not, because the kernel reports a lost write
	// only once. If SaveMemory fails, the domain continues, and a part of the file may remain. It
	// returns ErrNotActive if the domain is off, ErrExists if the file exists, ErrBusy while a
	// block job runs, and ErrUnsupported for a transient domain, which would be lost.
	SaveMemory(ctx context.Context, id, path string) error
	// SavingMemory reports whether a SaveMemory of the domain is under way; its caller may have
	// died. If the domain was paused before, its state does not show the save.
	SavingMemory(ctx context.Context, id string) (bool, error)
	// SavedDisks reads the disks of domain id's process from a file of SaveMemory. It returns
	// ErrIncomplete if the hypervisor has not written the file completely.
	SavedDisks(ctx context.Context, id, path string) ([]Disk, error)
	// RestoreMemory starts the domain id from a file of SaveMemory. The persistent definition and
	// the file do not change. It returns ErrActive if the domain is active, ErrNotFound if the
	// domain is not defined or lacks a disk of opts.Chains, and ErrGuarded and ErrInUse as PowerOn
	// does. On other errors the domain is off.
	RestoreMemory(ctx context.Context, id, path string, opts RestoreOptions) error
}

// RestoreOptions are the options of RestoreMemory.
type RestoreOptions struct {
	// Chains replace the chains of the disks with these targets.
	Chains map[string][]Image
	Paused bool
	// StartToken is a text that the host's hook finds only in the definition of this start; empty
	// for none. The token ends with the process.
	StartToken string
}
