// SPDX-License-Identifier: Apache-2.0

// Package fulldisk makes full disks for tests.
package fulldisk

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Disk returns a directory that is a filesystem of its own for the test, of this size. Without
// root the test is skipped.
func Disk(t testing.TB, mib int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		t.Skipf("skipped: a filesystem of its own needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Fill writes a file at path until its filesystem has no room for another block, not for root
// either. ext4 frees the blocks of removed files only with a sync: these are filled, too.
func Fill(t testing.TB, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // what it has is nothing to anybody
	for written := true; written; {
		if written, err = fill(f); err != nil {
			t.Fatal(err)
		}
		if err := unix.Syncfs(int(f.Fd())); err != nil && !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
}

// fill writes to a file until there is no room, and reports whether there was any.
func fill(f *os.File) (written bool, err error) {
	for size := 1 << 20; size >= 512; {
		switch _, err := f.Write(make([]byte, size)); {
		case errors.Is(err, unix.ENOSPC):
			size /= 2
		case err != nil:
			return written, err
		default:
			written = true
		}
	}
	return written, nil
}
