// SPDX-License-Identifier: Apache-2.0

package hv

// JobKind is the kind of a block job.
type JobKind string

// The kinds of block jobs.
const (
	JobCopy         JobKind = "copy"
	JobActiveCommit JobKind = "active-commit"
	JobBackup       JobKind = "backup" // another program's
	JobOther        JobKind = "other"
)

// Job is the progress of a block job as the hypervisor reports it. If the job is ready and the
// domain is paused, Current equal to End means that no block is dirty.
type Job struct {
	Kind                    JobKind
	Current                 int64
	End                     int64
	BandwidthBytesPerSecond int64
	// Tracking: the job has scanned the disk, and misses no write of the guest from now on; see
	// JobStart.
	Tracking bool
}
