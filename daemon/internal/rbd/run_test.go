// SPDX-License-Identifier: Apache-2.0

package rbd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestMain makes this program a Ceph tool that prints which signal the kernel sends when the parent
// process dies.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "ceph" {
		os.Exit(m.Run())
	}
	var signal int32
	err := unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&signal)), 0, 0, 0)
	_, _ = fmt.Fprintln(os.Stdout, signal, err)
}

func TestAToolOfCephDiesWithTheDaemon(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, dir+"/ceph"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	key, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = key.Close() }()
	out, err := Cluster{}.output(t.Context(), key, "ceph", "fsid")
	if want := fmt.Sprintln(int(syscall.SIGKILL), nil); err != nil || string(out) != want {
		t.Errorf("it printed %q, %v; want %q", strings.TrimSpace(string(out)), err, want)
	}
}
