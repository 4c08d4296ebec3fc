// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// injectTimeout bounds how long a tracer may take to have its hand on a process.
const injectTimeout = 10 * time.Second

// Inject lets strace change system calls of a process with these arguments
// (strace --inject) until the returned function is called, or the process ends. It
// returns when the process is traced. Where there is no strace the test is skipped, or
// fails if the lab is required.
func Inject(tb testing.TB, pid int, args ...string) (stop func()) {
	tb.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		SkipOrFail(tb, "the test needs strace (package strace); run test/lab/install.sh as root")
	}
	cmd := exec.Command("strace", append([]string{"-f", "-qq", "-o", os.DevNull, "-p", strconv.Itoa(pid)}, args...)...) //nolint:noctx // stop ends it
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		tb.Fatalf("start strace: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the traced process may have ended it
	}()
	stop = func() {
		_ = cmd.Process.Signal(unix.SIGINT) // it lets go and ends
		<-ended
	}
	tb.Cleanup(stop)
	if !poll(Limit(injectTimeout), func() bool { return traced(pid) }) {
		tb.Fatalf("strace does not have process %d after %s", pid, Limit(injectTimeout))
	}
	return stop
}

// traced reports whether every thread of a process has a tracer.
func traced(pid int) bool {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return false
	}
	for _, task := range tasks {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, task.Name()))
		if err != nil || strings.Contains(string(status), "TracerPid:\t0\n") {
			return false
		}
	}
	return true
}
