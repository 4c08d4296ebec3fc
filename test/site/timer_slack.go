// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is what the unit of a program sets (TimerSlackNSec), 0 if it sets nothing.
func timerSlack(program string) time.Duration {
	if program == "volferryd" {
		return 500 * time.Microsecond
	}
	return 0
}

// startAsItsUnit starts a program with its slack of timers, which a process has from the thread
// that makes it.
func startAsItsUnit(cmd *exec.Cmd, slack time.Duration) error {
	if slack == 0 {
		return cmd.Start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack.Nanoseconds()), 0, 0, 0); err != nil {
		return fmt.Errorf("set slack of timers: %w", err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // 0: what the thread had at first
	return cmd.Start()
}
