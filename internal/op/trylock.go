// SPDX-License-Identifier: Apache-2.0

package op

// TryLock calls f while no op has one of the keys, and reports whether it did. It does not
// wait: f is not called if an op has one of the keys, whether it is at work, waiting or
// parked, nor while ops of the journal may not have been taken up (before Resume, and after
// Halt or Stop). Ops that are submitted while f is at work wait for their turn, so f has to
// be short.
//
// It is for work that is no op itself and must not come into the middle of one: the journal
// has nothing of it, so a crash may cut it off anywhere without harm. Halt and Stop wait
// for f; f may call neither, nor wait for an op.
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

// enterFree enters with mine if it is its turn at once. It counts as an op at work
// then, until its caller says that it is not.
func (r *Runner) enterFree(mine *ticket) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped || !r.whole || !r.queue.enterFree(mine) {
		return false
	}
	r.wg.Add(1)
	return true
}
