// SPDX-License-Identifier: Apache-2.0

package hv

import "context"

// BlockJobs begins, watches and ends the block job of a live disk.
type BlockJobs interface {
	// BlockCopy starts to mirror the live disk into dst, an existing image. It returns when the
	// job runs. If dst has another size than the disk, the job ends at once, and BlockCopy returns
	// no error: compare the sizes before.
	BlockCopy(ctx context.Context, id, target string, dst Image, opts BlockCopyOptions) error
	// CommitActive starts to commit the top image of the live chain into its direct backing image,
	// never deeper. bytesPerSecond caps the job; 0 means no cap.
	CommitActive(ctx context.Context, id, target string, bytesPerSecond int64) error
	// Job returns the block job on the live disk, or nil. Nil does not prove how a job ended: read
	// the chain.
	Job(ctx context.Context, id, target string) (*Job, error)
	// SetJobBandwidth changes the cap of the running job; 0 removes it.
	SetJobBandwidth(ctx context.Context, id, target string, bytesPerSecond int64) error
	// Pivot ends a ready job and makes its target the live disk, or returns ErrNotReady. When it
	// returns nil, the hypervisor has closed the images that are no longer in the disk's chain.
	Pivot(ctx context.Context, id, target string) error
	// AbortJob ends the job; the disk stays on its present chain. It returns nil if there is no
	// job or the domain is not active. The target of an active commit may stay open for writing
	// until the process ends.
	AbortJob(ctx context.Context, id, target string) error
	// EndConnections closes the connections of an active domain's process to the server of the NBD
	// export at an address, as if the server were down. Unanswered requests fail, and a job that
	// writes there ends with an error. Every later request of a guest's disk on the export fails.
	// It returns nil if there are no connections.
	EndConnections(ctx context.Context, id, address string) error
}
