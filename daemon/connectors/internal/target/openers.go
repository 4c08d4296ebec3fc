// SPDX-License-Identifier: Apache-2.0

package target

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Opener returns the number of a process that has one of these devices open, 0 for none; after an
// error this is unknown. It ignores devices that the kernel has stacked on them, and processes
// with a name in others.
func Opener(devices []string, others ...string) (pid int, err error) {
	numbers := map[uint64]bool{}
	for _, path := range devices {
		var st unix.Stat_t
		err := unix.Stat(path, &st)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return 0, &os.PathError{Op: "stat", Path: path, Err: err}
		}
		numbers[st.Rdev] = true
	}
	processes, err := filepath.Glob("/proc/[0-9]*/fd")
	if err != nil {
		return 0, err
	}
	for _, dir := range processes {
		open, err := hasOpen(dir, numbers)
		if err != nil {
			return 0, fmt.Errorf("see what process %s has open: %w", filepath.Base(filepath.Dir(dir)), err)
		}
		if open && !isCalled(filepath.Dir(dir), others) {
			return strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		}
	}
	return 0, nil
}

func isCalled(dir string, names []string) bool {
	name, err := os.ReadFile(filepath.Join(dir, "comm"))
	return err == nil && slices.Contains(names, strings.TrimSpace(string(name)))
}

func hasOpen(dir string, numbers map[uint64]bool) (bool, error) {
	entries, err := os.ReadDir(dir)
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		var st unix.Stat_t
		err := unix.Stat(filepath.Join(dir, e.Name()), &st)
		switch {
		case gone(err):
		case err != nil:
			return false, err
		case st.Mode&unix.S_IFMT == unix.S_IFBLK && numbers[st.Rdev]:
			return true, nil
		}
	}
	return false, nil
}

func gone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) }
