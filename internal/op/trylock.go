// SPDX-License-Identifier: Apache-2.0

package op

// TryLock calls f while no op has one of the keys, and says whether it did. It waits
// for nobody: f is not called if an op has one of them, be it at work, waiting or
// parked, nor while ops may be in the journal that have not been taken up, which is
// before Resume and after Halt or Stop. Ops that come while f is at work wait for
// their turn, so f is short.
//
// It is for what must not come into the middle of an op and is no op itself: nothing
// of it is in the journal, so it has to be right wherever a crash cuts it off. Halt
// and Stop wait for f, which may call neither, nor wait for an op.
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
