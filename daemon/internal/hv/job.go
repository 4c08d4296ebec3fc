// SPDX-License-Identifier: Apache-2.0

package hv

// JobKind is the kind of a block job.
type JobKind string

// The kinds of block jobs.
const (
	JobCopy         JobKind = "copy"
	JobActiveCommit JobKind = "active-commit"
	JobBackup       JobKind = "backup" // of somebody else: Volferry begins none
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
