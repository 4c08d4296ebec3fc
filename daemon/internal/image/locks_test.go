// SPDX-License-Identifier: Apache-2.0

package image

import (
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

// opensInQEMU lets a QEMU program keep an image open until closes is called, or the test ends.
func opensInQEMU(t *testing.T, args ...string) (closes func()) {
	t.Helper()
	qemu, err := exec.LookPath("qemu-io")
	if err != nil {
		t.Skip("SKIPPED: qemu-io is not installed")
	}
	cmd := exec.CommandContext(t.Context(), qemu, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	closes = sync.OnceFunc(func() { _, _ = in.Close(), cmd.Wait() })
	t.Cleanup(closes)
	if _, err := in.Write([]byte("length\n")); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() { _, err := out.Read(make([]byte, 64)); answered <- err }()
	select { // its prompt: it has the image open
	case err := <-answered:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("qemu-io says nothing")
	}
	return closes
}

func TestTheLocksOfQEMUSayWhoHasAFileOpen(t *testing.T) {
	for _, format := range []string{qemuimg.FormatRaw, qemuimg.FormatQCOW2} {
		path := filepath.Join(t.TempDir(), "vol")
		if out, err := exec.CommandContext(t.Context(), "qemu-img", "create", "-q", "-f", format, path, "1M").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		see := func(when string, want Locks) {
			t.Helper()
			got, err := Storage{}.Locks(t.Context(), path)
			if err != nil || got != want {
				t.Errorf("%s %s: %+v (%v), want %+v", format, when, got, err, want)
			}
		}
		see("that nobody has open", Locks{})
		closes := opensInQEMU(t, "-f", format, path)
		see("that is open for writing", Locks{Open: true, Writes: true})
		closes()
		see("that was closed", Locks{})
		closes = opensInQEMU(t, "-r", "-f", format, path)
		see("that is only read", Locks{Open: true})
		closes()
	}
}

func TestNobodyHasAnImageLockedThatHasNoLocks(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "absent"), t.TempDir(), "nbd://server/web"} {
		if locks, err := (Storage{}).Locks(t.Context(), path); err != nil || locks != (Locks{}) {
			t.Errorf("%s: %+v (%v)", path, locks, err)
		}
	}
}
