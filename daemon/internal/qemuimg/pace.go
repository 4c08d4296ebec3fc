// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Throttle is called, while the child is stopped, with the number of bytes that the child
// has moved since the last call. When it returns, the child goes on. An error kills the
// child.
type Throttle func(ctx context.Context, bytes int64) error

// paceInterval is how long a child runs between two looks at it. At 1 GiB/s it
// moves 10 MiB meanwhile, which bounds the bursts under a cap.
const paceInterval = 10 * time.Millisecond

// pace stops and continues the child as throttle says until ctx or the child
// ends. Options of qemu-img (-r) cannot be changed while it runs; stopping it
// needs no cooperation.
func pace(ctx context.Context, child *os.Process, throttle Throttle) error {
	tick := time.NewTicker(paceInterval)
	defer tick.Stop()
	var seen int64
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		moved, err := movedBytes(child.Pid)
		if err != nil || moved <= seen {
			// A child that has just ended has no counters; Wait tells.
			continue
		}
		if err := child.Signal(unix.SIGSTOP); err != nil {
			continue
		}
		err = throttle(ctx, moved-seen)
		seen = moved
		if err != nil {
			killErr := child.Kill()
			if ctx.Err() != nil {
				return nil
			}
			return errors.Join(err, killErr)
		}
		if err := child.Signal(unix.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return errors.Join(fmt.Errorf("continue qemu-img: %w", err), child.Kill())
		}
	}
}

// movedBytes is what the child has read or written so far, whichever is more.
// rchar and wchar count system calls, read_bytes and write_bytes what reached a
// device; the first miss asynchronous I/O and the second the page cache.
func movedBytes(pid int) (int64, error) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/io")
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	var most int64
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "rchar", "wchar", "read_bytes", "write_bytes":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("parse %s: %w", f.Name(), err)
			}
			most = max(most, n)
		}
	}
	return most, nil
}
