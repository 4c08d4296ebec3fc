// SPDX-License-Identifier: Apache-2.0

package steps

import "github.com/volferry/volferry/daemon/internal/hv"

// flushAfterBytes of a block job are put on stable storage at a time, as of a copy.
const flushAfterBytes = 128 << 20

// flushBehind has what a block job has written put on stable storage while it goes on. All of it has to be there
// at its end, and one flush of gigabytes that wait in the memory of the host, or of the disk, has the guest's
// writes wait for as long. Only time depends on it.
type flushBehind struct {
	flush   func()
	at      int64         // of the job, when the last flush began
	running chan struct{} // closed when that is over; nil if there was none
}

// look begins a flush if the job has written enough since the last one, and that is over. It does not wait.
func (f *flushBehind) look(job *hv.Job) {
	if job == nil || job.Current-f.at < flushAfterBytes || f.busy() {
		return
	}
	over := make(chan struct{})
	f.at, f.running = job.Current, over
	go func() {
		defer close(over)
		f.flush()
	}()
}

func (f *flushBehind) busy() bool {
	if f.running == nil {
		return false
	}
	select {
	case <-f.running:
		return false
	default:
		return true
	}
}
