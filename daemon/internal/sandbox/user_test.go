// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// /proc shows other programs the main thread's rights, and the main thread cannot end if its rights
// cannot be restored.
func TestTheMainThreadNeverHasTheRightsOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: it needs root, who may take the rights of another user")
	}
	const calls = 16
	var together, done sync.WaitGroup
	var onMain atomic.Int32
	together.Add(calls)
	for range calls {
		done.Go(func() {
			if err := (User{UID: 12345, GID: 12345}).As(func() error {
				if syscall.Gettid() == syscall.Getpid() {
					onMain.Add(1)
				}
				together.Done() // each keeps its thread until all have one
				together.Wait()
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	if n := onMain.Load(); n != 0 {
		t.Errorf("%d of %d calls had the main thread", n, calls)
	}
}
