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
// in dir: those that see dir's private run directory as /run/libvirt, or those whose
// root is dir's, where it has one. No pid file and no name is trusted, so nothing of
// another lab or of the host is ever among them.
func processesOf(dir string) ([]process, error) {
	seenAt := make(map[string]fs.FileInfo) // by the path below /proc/PID/root
	for name, at := range map[string]string{"run": "/run/libvirt", "root": "/"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue // nothing was ever started in it
		}
		if err != nil {
			return nil, fmt.Errorf("inspect lab: %w", err)
		}
		// With one that is what we see there too, every process of the host would be found.
		if own, err := os.Stat(at); err == nil && os.SameFile(own, info) {
			return nil, fmt.Errorf("inspect lab: %s is %s of this host itself: its processes are nobody's to list", filepath.Join(dir, name), at)
		}
		seenAt[at] = info
	}
	if len(seenAt) == 0 {
		return nil, nil
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
		if !lives(pid, seenAt) {
			continue // gone, or elsewhere
		}
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		found = append(found, process{pid: pid, name: strings.TrimSpace(string(name))})
	}
	return found, nil
}

// lives reports whether a process sees one of the directories at its path.
func lives(pid int, seenAt map[string]fs.FileInfo) bool {
	for at, want := range seenAt {
		got, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", pid, at))
		if err == nil && os.SameFile(want, got) {
			return true
		}
	}
	return false
}

// usersOf names the processes that have something at or below path open, or as
// their working directory, for an error message: whatever cannot be read is
// passed over.
func usersOf(path string) []string {
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	dirs, _ := filepath.Glob("/proc/[0-9]*/cwd")
	var users []string
	for _, link := range append(links, dirs...) {
		if file, err := os.Readlink(link); err == nil && within(path, file) {
			pid, what, _ := strings.Cut(strings.TrimPrefix(link, "/proc/"), "/")
			name, _ := os.ReadFile("/proc/" + pid + "/comm")
			users = append(users, fmt.Sprintf("%s (%s) %s %s", pid, strings.TrimSpace(string(name)), what, file))
		}
	}
	return users
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
// at which it started, in clock ticks. It is empty if there is no such process, or
// one that is dead and that nobody has waited for.
func startTime(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name, in parentheses, may hold spaces; what follows does not.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const startTimeAfterName = 19
	if len(fields) <= startTimeAfterName || string(fields[0]) == "Z" {
		return ""
	}
	return string(fields[startTimeAfterName])
}
