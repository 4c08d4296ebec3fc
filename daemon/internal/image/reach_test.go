// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
)

// reachable makes a directory that every user can reach, with two nested ones in it.
func reachable(t *testing.T) (outer, inner string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to look as another user")
	}
	top, err := os.MkdirTemp("/var/tmp", "volferry-reach-") //nolint:usetesting // the parent of t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	outer = filepath.Join(top, "outer")
	inner = filepath.Join(outer, "inner")
	if err := errors.Join(os.Chmod(top, 0o755), os.MkdirAll(inner, 0o755)); err != nil {
		t.Fatal(err)
	}
	return outer, inner
}

func TestADirectoryThatQEMUMayNotPassIsNamed(t *testing.T) {
	who := hv.ProcessUser{UID: 64055, GID: 64055}
	for mode, reached := range map[os.FileMode]bool{0o755: true, 0o711: true, 0o700: false, 0o754: false, 0o750: false} {
		outer, inner := reachable(t)
		if err := os.Chmod(outer, mode); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(filepath.Dir(outer), "link")
		if err := os.Symlink(inner, link); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{outer, inner, link} {
			err := image.Storage{}.Reach(who, dir)
			var blocked *image.ReachError
			switch {
			case reached && err != nil:
				t.Errorf("mode %o: %v", mode, err)
			case !reached && (!errors.As(err, &blocked) || blocked.Dir != outer || blocked.Mode != mode):
				t.Errorf("mode %o: %v, want that %s is in the way", mode, err, outer)
			}
		}
	}
}

// QEMU needs access to the link, and to the socket.
func TestASocketByASymbolicLinkIsReachedThroughTheDirectoriesOfBoth(t *testing.T) {
	who := hv.ProcessUser{UID: 64055, GID: 64055}
	outer, inner := reachable(t)
	socket, link := filepath.Join(inner, "socket"), filepath.Join(filepath.Dir(outer), "link")
	listener, err := net.Listen("unix", socket) //nolint:noctx // it is there at once
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := errors.Join(os.Chmod(socket, 0o666), os.Symlink(socket, link)); err != nil {
		t.Fatal(err)
	}
	for mode, reached := range map[os.FileMode]bool{0o755: true, 0o700: false} {
		if err := os.Chmod(outer, mode); err != nil {
			t.Fatal(err)
		}
		var blocked *image.ReachError
		err := image.Storage{}.MayOpen(who, "nbd+unix:///disk?socket="+link)
		if reached && err != nil || !reached && (!errors.As(err, &blocked) || blocked.Dir != outer) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

func TestGroupAndOwnerMayPassWhereTheModeSaysSo(t *testing.T) {
	outer, inner := reachable(t)
	if err := errors.Join(os.Chown(outer, 1, 4242), os.Chmod(outer, 0o710)); err != nil {
		t.Fatal(err)
	}
	for who, reached := range map[hv.ProcessUser]bool{
		{UID: 64055, GID: 4242}: true, {UID: 1, GID: 4242}: true, {UID: 64055, GID: 4243}: false, {}: true, // root
	} {
		if err := (image.Storage{}).Reach(who, inner); (err == nil) != reached {
			t.Errorf("%+v: %v", who, err)
		}
	}
}

func TestToLookAsAnotherUserChangesNoOtherThread(t *testing.T) {
	outer, _ := reachable(t)
	before, err := syscall.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(outer, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := (image.Storage{}).Reach(hv.ProcessUser{UID: 64055, GID: 107}, outer); err == nil {
			t.Fatal("it was reached")
		}
		// The next goroutine on the thread must still be root.
		if _, err := os.ReadDir(outer); err != nil {
			t.Fatal(err)
		}
	}
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		status, err := os.ReadFile(task)
		if err == nil && strings.Contains(string(status), "64055") {
			t.Errorf("a thread is left with another user's rights: %s", task)
		}
	}
	if after, err := syscall.Getgroups(); err != nil || len(after) != len(before) {
		t.Errorf("groups of the process: %v, were %v (%v)", after, before, err)
	}
}

func TestWhatIsNotThereIsNotReached(t *testing.T) {
	if err := (image.Storage{}).Reach(hv.ProcessUser{UID: 64055}, "/no/such/directory"); !errors.Is(err, image.ErrAbsent) {
		t.Errorf("%v, want ErrAbsent", err)
	}
}
