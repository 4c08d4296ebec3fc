// SPDX-License-Identifier: Apache-2.0

package hv

// JobKind is the kind of a block job.
type JobKind string

// The kinds of block jobs.
const (
	JobCopy         JobKind = "copy"
	JobActiveCommit JobKind = "active-commit"
	JobOther        JobKind = "other"
)

// Job is the progress of a block job as the hypervisor reports it. Current
// equal to End on a ready job of a paused domain means that nothing is dirty.
type Job struct {
	Kind                    JobKind
	Current                 int64
	End                     int64
	BandwidthBytesPerSecond int64
	// Tracking: the job has looked through the disk, and no write of the guest escapes it
	// any more; see JobStart.
	Tracking bool
}

// BlockCopyOptions are the options of BlockCopy.
type BlockCopyOptions struct {
	// Shallow copies the top layer only. The caller has just seen that the live
	// chain has a backing image: without one QEMU would quietly do a full copy
	// and zero the target first.
	Shallow bool
	// Synchronous mirrors every guest write before it completes, so that the
	// job converges under any load.
	Synchronous bool
	// BandwidthBytesPerSecond caps the job; 0 is no cap.
	BandwidthBytesPerSecond int64
	// GranularityBytes of the dirty bitmap, a power of two; 0 lets QEMU choose.
	GranularityBytes int
}
