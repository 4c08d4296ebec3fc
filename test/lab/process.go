// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is one line of the process table.
type process struct {
	pid  int
	name string // as in /proc/PID/comm, at most 15 bytes
}

// processesOf lists the processes that live in the mount namespace of the lab
// in dir: those that see dir's private run directory as /run/libvirt. No pid
// file and no name is trusted, so nothing of another lab or of the host is ever
// among them.
func processesOf(dir string) ([]process, error) {
	want, err := os.Stat(filepath.Join(dir, "run"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil // no libvirtd was ever started in it
	}
	if err != nil {
		return nil, fmt.Errorf("inspect lab: %w", err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		got, err := os.Stat(fmt.Sprintf("/proc/%d/root/run/libvirt", pid))
		if err != nil || !os.SameFile(want, got) {
			continue // gone, or elsewhere
		}
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		found = append(found, process{pid: pid, name: strings.TrimSpace(string(name))})
	}
	return found, nil
}

// killAllOf kills every process of the lab in dir. It does not wait.
func killAllOf(dir string) error {
	procs, err := processesOf(dir)
	for _, p := range procs {
		if e := unix.Kill(p.pid, unix.SIGKILL); e != nil && !errors.Is(e, unix.ESRCH) {
			err = errors.Join(err, fmt.Errorf("kill %s: %w", p.name, e))
		}
	}
	return err
}

// startTime tells two processes with the same pid apart: the time since boot
// at which it started, in clock ticks. It is empty if there is no such process.
func startTime(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name, in parentheses, may hold spaces; what follows does not.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const startTimeAfterName = 19
	if len(fields) <= startTimeAfterName {
		return ""
	}
	return string(fields[startTimeAfterName])
}
