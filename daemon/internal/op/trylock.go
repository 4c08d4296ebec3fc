// SPDX-License-Identifier: Apache-2.0

package op

// TryLock calls f if no op has one of the keys, and reports whether it did. It does not wait. It
// returns false if a running, waiting or parked op has one of the keys, and while the queue may
// lack ops of the journal (before Resume, and after Halt or Stop). Ops that are submitted
// meanwhile wait for f, so f has to be short.
//
// It is for work that is no op and must not run during an op. The journal has no record of it, so
// a crash at any point of f must be harmless. Halt and Stop wait for f; f must not call them, nor
// wait for an op.
func (r *Runner) TryLock(keys []string, f func()) bool {
	mine := &ticket{keys: keys}
	if !r.enterFree(mine) {
		return false
	}
	defer r.wg.Done()
	defer r.queue.leave(mine)
	f()
	return true
}

// enterFree enters mine in the queue if TryLock may call its function. If it returns true, the
// caller must call r.wg.Done.
func (r *Runner) enterFree(mine *ticket) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped || !r.whole || !r.queue.enterFree(mine) {
		return false
	}
	r.wg.Add(1)
	return true
}
