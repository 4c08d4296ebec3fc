// SPDX-License-Identifier: Apache-2.0

package osthread

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestEachFunctionHasAThreadWhichIsNotTheMainOne(t *testing.T) {
	const functions = 16
	var together, done sync.WaitGroup
	var onMain atomic.Int32
	var threads sync.Map
	together.Add(functions)
	for range functions {
		done.Go(func() {
			Own(func() bool {
				if syscall.Gettid() == syscall.Getpid() {
					onMain.Add(1)
				}
				if _, taken := threads.LoadOrStore(syscall.Gettid(), true); taken {
					t.Error("two functions have one thread")
				}
				together.Done() // each has a thread of its own until all have one
				together.Wait()
				return true
			})
		})
	}
	done.Wait()
	if n := onMain.Load(); n != 0 {
		t.Errorf("%d of %d functions had the main thread", n, functions)
	}
}

func TestAThreadThatIsNotReusableEnds(t *testing.T) {
	var thread int
	Own(func() bool {
		thread = syscall.Gettid()
		return false
	})
	for unix.Tgkill(syscall.Getpid(), thread, 0) == nil { // it ends in a moment, or the test does not end
		runtime.Gosched()
	}
}
