// SPDX-License-Identifier: Apache-2.0

// Package osthread runs functions on their own kernel threads: credentials, Landlock domains and
// the parents of processes belong to threads.
package osthread

import (
	"runtime"
	"syscall"
)

// Own calls f on a thread that nothing else uses meanwhile. If f returns false, the thread ends.
// It is never the main thread: that cannot end, and /proc shows its credentials and Landlock
// domain as the process's.
func Own(f func() (reusable bool)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if syscall.Gettid() == syscall.Getpid() {
			defer runtime.UnlockOSThread()
			Own(f) // on another thread: this one is the main thread
			return
		}
		if f() {
			runtime.UnlockOSThread()
		}
	}()
	<-done
}
