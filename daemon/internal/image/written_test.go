// SPDX-License-Identifier: Apache-2.0

package image

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAFileThatSomebodyWritesIsSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "replica.raw")
	written := func() bool {
		t.Helper()
		got, err := Storage{}.Written(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if written() {
		t.Error("a file that is not there is written")
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if !written() {
		t.Error("it is open for writing, and that is not seen")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close() //nolint:errcheck // it only reads
	if written() {
		t.Error("a file that is only read is written")
	}
}

func TestAFileWhoseWritersNobodyMaySeeIsNotCalledUnwritten(t *testing.T) {
	path := "/etc/passwd" // root's, so that no other user gets a lease on it
	if os.Geteuid() == 0 {
		path = fileOfAnotherUser(t)
		dropLease(t)
	}
	if written, err := (Storage{}).Written(t.Context(), path); err == nil {
		t.Errorf("without CAP_LEASE: written = %v, and no error", written)
	}
}

func fileOfAnotherUser(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "replica.raw")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const anotherUser = 12345
	if err := os.Chown(path, anotherUser, anotherUser); err != nil {
		t.Fatal(err)
	}
	return path
}

// dropLease permanently drops CAP_LEASE of this goroutine's thread, which ends with the goroutine.
func dropLease(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		t.Fatal(err)
	}
	sets[0].Effective &^= 1 << unix.CAP_LEASE
	if err := unix.Capset(&header, &sets[0]); err != nil {
		t.Fatal(err)
	}
}
