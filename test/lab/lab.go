// SPDX-License-Identifier: Apache-2.0

// Package lab builds the machines that the end-to-end tests and the demo run
// on: a private libvirtd, pools on loop devices, real guests under QEMU's TCG
// whose only program is a deterministic writer, and the checker that reads a
// volume afterwards and proves that no acknowledged write was lost.
//
// It needs root, and the packages that install.sh installs. It knows libvirt,
// QEMU and the kernel, and must not know Volferry: what it finds out about a
// volume is evidence only because no code under test took part in it.
package lab

import (
	"os"
	"testing"
	"time"
)

// maxSocketPath is the longest path of a unix socket that Linux accepts, the
// terminating zero included.
const maxSocketPath = 108

// TempDir makes a directory whose path is short enough for the unix sockets in
// it, which testing.TB's own is not for a test with a long name. It is removed
// with the test, unless that failed and VOLFERRY_LAB_KEEP is set; a lab that
// lives in it must be closed before.
func TempDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "vflab-") //nolint:usetesting // too long for sockets
	if err != nil {
		tb.Fatalf("make lab directory: %v", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // QEMU's user passes through
		tb.Fatalf("make lab directory: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() && os.Getenv("VOLFERRY_LAB_KEEP") != "" {
			tb.Logf("lab directory kept: %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("remove lab directory: %v", err)
		}
	})
	return dir
}

// poll calls done every few milliseconds until it returns true, or until the
// time is up, and reports which.
func poll(timeout time.Duration, done func() bool) bool {
	return pollEvery(10*time.Millisecond, timeout, done)
}

// startsPrograms is how often to ask what a program has to be started for: more often, and the
// answers take the time of those who are waited for.
const startsPrograms = 100 * time.Millisecond

func pollEvery(interval, timeout time.Duration, done func() bool) bool {
	expired := time.After(timeout)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-expired:
			return false
		}
	}
	return true
}
