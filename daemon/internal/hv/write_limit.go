// SPDX-License-Identifier: Apache-2.0

package hv

import "context"

// WriteLimits limits the writes of a guest, and counts its requests.
type WriteLimits interface {
	// ResetWriteLimit sets the live disk's limit on guest writes to the limit of the persistent
	// definition, or removes it. It returns ErrUnsupported if the owner limits reads and writes
	// together.
	ResetWriteLimit(ctx context.Context, id, target string) error
	// LiveWriteLimit returns the limit on the guest's writes to the live disk, in bytes per
	// second, whichever program has set it; 0 means none. PutWriteLimit sets it regardless of the
	// definition, to restore a limit. Both return ErrUnsupported as ResetWriteLimit does.
	LiveWriteLimit(ctx context.Context, id, target string) (bytesPerSecond int64, err error)
	PutWriteLimit(ctx context.Context, id, target string, bytesPerSecond int64) error
	// DiskStats reads the counters of the live disk.
	DiskStats(ctx context.Context, id, target string) (*DiskStats, error)
}
