// SPDX-License-Identifier: Apache-2.0

package child

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// The main thread stays when its goroutine ends, and it is what others see of the process in /proc.
func TestTheMainThreadIsNeverRestricted(t *testing.T) {
	const programs = 16
	refused := errors.New("refused")
	var together, done sync.WaitGroup
	var onMain atomic.Int32
	together.Add(programs)
	for range programs {
		done.Go(func() {
			_, err := Start(t.Context(), Command{Program: "/bin/true", Restrict: func() error {
				if syscall.Gettid() == syscall.Getpid() {
					onMain.Add(1)
				}
				together.Done() // each has a thread of its own until all have one
				together.Wait()
				return refused
			}})
			if !errors.Is(err, refused) {
				t.Error(err)
			}
		})
	}
	done.Wait()
	if n := onMain.Load(); n != 0 {
		t.Errorf("%d of %d programs restricted the main thread", n, programs)
	}
}
