// SPDX-License-Identifier: Apache-2.0

// Package osthread gives functions a thread of the kernel for themselves: credentials, Landlock
// domains and the parents of processes belong to threads. It must not know what the functions do.
package osthread

import (
	"runtime"
	"syscall"
)

// Own calls f on a thread that nothing else uses meanwhile. A thread that is not reusable
// afterwards ends. It is never the main thread, which cannot end, and whose credentials and
// Landlock domain are those of the process in /proc.
func Own(f func() (reusable bool)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if syscall.Gettid() == syscall.Getpid() {
			defer runtime.UnlockOSThread()
			Own(f) // on another one, as this one is taken
			return
		}
		if f() {
			runtime.UnlockOSThread()
		}
	}()
	<-done
}
