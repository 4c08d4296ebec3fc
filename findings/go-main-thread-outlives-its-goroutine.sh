#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Go, runtime.LockOSThread: a goroutine that ends while it is locked to its thread ends that thread,
# and with it whatever was changed of the thread alone: filesystem ids, a Landlock domain, a network
# namespace. Programs rely on it to throw such a thread away.
#
# The main thread of the process is the exception on Linux. It does not end: it sleeps until the
# process ends, and keeps what was changed. /proc/PID shows the main thread, so others see the whole
# process with the ids that one goroutine took for a moment. Any goroutine may be scheduled there.
#
# Seen with Go 1.26.0 on Linux, amd64. The ids are the example: each goroutine takes fsuid 65534 for
# its thread by a system call, and ends.
#
#   another thread: gone
#   main thread: there, fsuid 65534
#   /proc/PID/status: fsuid 65534
#
# Needs root, a Go toolchain that can fetch another one, and /proc. A program that changes a thread
# asks whether gettid() is getpid(), and goes to another thread then.
set -eu

version=1.26.0
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir" && rm -rf "$dir"' EXIT
[ "$(id -u)" = 0 ] || { echo 'needs root' >&2; exit 1; }

cd "$dir"
cat >go.mod <<END
module thread
go $version
END
cat >main.go <<'END'
package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// take gives the calling thread alone another fsuid, and ends the goroutine, which is locked to it.
func take(threads chan<- int) {
	runtime.LockOSThread()
	syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0)
	threads <- syscall.Gettid()
	runtime.Goexit()
}

// fsuid is the fourth number of the line Uid.
func fsuid(status string) string {
	text, err := os.ReadFile(status)
	if err != nil {
		return "gone"
	}
	for line := range strings.Lines(string(text)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			return "fsuid " + strings.Fields(ids)[3]
		}
	}
	return "not said"
}

func look(main, other <-chan int) {
	thread, second := <-main, <-other
	task := func(tid int) string { return fmt.Sprintf("/proc/self/task/%d/status", tid) }
	for range 500 { // until the kernel has ended the thread
		if fsuid(task(second)) == "gone" {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("another thread:", fsuid(task(second)))
	fmt.Println("main thread: there,", fsuid(task(thread)))
	fmt.Printf("/proc/PID/status: %s\n", fsuid(fmt.Sprintf("/proc/%d/status", os.Getpid())))
	if thread != os.Getpid() {
		fmt.Println("main did not run on the main thread")
	}
	os.Exit(0)
}

// The main goroutine stays on the main thread from here on.
func init() { runtime.LockOSThread() }

func main() {
	mine, others := make(chan int, 1), make(chan int, 1)
	go look(mine, others)
	go take(others)
	take(mine)
}
END
export GOTOOLCHAIN=go$version GOFLAGS=-mod=mod GOCACHE="$dir/cache" GOMODCACHE="$dir/mod" CGO_ENABLED=0
go version | grep -qF "go$version " || { echo "no Go $version" >&2; exit 1; }
go run . >seen
cat >want <<'END'
another thread: gone
main thread: there, fsuid 65534
/proc/PID/status: fsuid 65534
END
diff -u want seen && echo 'as stated'
