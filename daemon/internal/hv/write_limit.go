// SPDX-License-Identifier: Apache-2.0

package hv

import "context"

// WriteLimits limits the writes of a guest, and counts its requests.
type WriteLimits interface {
	// LiveWriteLimit returns the limit on the guest's writes to the live disk, in bytes per second,
	// whichever program has set it; 0 means none. PutWriteLimit sets the limit regardless of the
	// definition. It returns ErrUnsupported if the owner limits reads and writes together.
	LiveWriteLimit(ctx context.Context, id, target string) (bytesPerSecond int64, err error)
	PutWriteLimit(ctx context.Context, id, target string, bytesPerSecond int64) error
	// DiskStats reads the counters of the live disk.
	DiskStats(ctx context.Context, id, target string) (*DiskStats, error)
}
