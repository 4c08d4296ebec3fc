// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
)

func TestADirectoryInMemoryIsRefusedForWhatHasToBeKept(t *testing.T) {
	const memory = "/dev/shm"
	if inMemory, err := (image.Storage{}).InMemory(memory); err != nil || !inMemory {
		t.Skipf("SKIPPED: this machine has no tmpfs at %s (%v)", memory, err)
	}
	dir, err := os.MkdirTemp(memory, "volferry-test-") //nolint:usetesting // a tmpfs
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := (image.Storage{}).TryDirectory(hv.ProcessUser{}, dir, image.Needs{FileBytes: 1 << 30, Named: true}); err != nil {
		t.Errorf("of what is not kept: %v", err)
	}
	err = (image.Storage{}).TryDirectory(hv.ProcessUser{}, dir, image.Needs{Kept: true})
	mustLack(t, err, "the filesystem of "+dir+" (tmpfs) is in memory")
	mustBeEmpty(t, dir)
}

// The largest file of ext4 with blocks of 1 KiB has 4 TiB.
func TestAFileThatAFilesystemDoesNotHoldIsNamedAndNoRoomIsTaken(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root to mount a filesystem")
	}
	top := t.TempDir()
	device, dir := filepath.Join(top, "device"), filepath.Join(top, "mounted")
	if err := errors.Join(os.WriteFile(device, nil, 0o600), os.Truncate(device, 32<<20), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-b", "1024", device}, {"mount", "-o", "loop", device, dir}} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("SKIPPED: %v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command("umount", dir).Run() }) //nolint:noctx // after the test
	if err := (image.Storage{}).TryDirectory(hv.ProcessUser{}, dir, image.Needs{FileBytes: 3 << 40, Named: true, Direct: true, Kept: true}); err != nil {
		t.Errorf("of a file that it holds: %v", err)
	}
	err := (image.Storage{}).TryDirectory(hv.ProcessUser{}, dir, image.Needs{FileBytes: 5 << 40})
	mustLack(t, err, "(ext4) holds no file of 5TiB")
	if e := image.Refused("migrate volume db", dir, err); api.CodeOf(e) != api.CodeInvalidArgument || !strings.HasPrefix(e.Error(), "cannot migrate volume db: the filesystem of ") {
		t.Errorf("the refusal is %v", e)
	}
	file := filepath.Join(dir, "image")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (image.Storage{}).CheckFileBytes(file, 3<<40); err != nil {
		t.Errorf("to make it as large as it may be: %v", err)
	}
	mustLack(t, (image.Storage{}).CheckFileBytes(file, 5<<40), "(ext4) holds no file of 5TiB")
	if err := errors.Join(os.Remove(file), os.Remove(filepath.Join(dir, "lost+found"))); err != nil {
		t.Fatal(err)
	}
	mustBeEmpty(t, dir)
}

func mustLack(t *testing.T, err error, words string) {
	t.Helper()
	var limit *image.LimitError
	if !errors.As(err, &limit) || !strings.Contains(err.Error(), words) {
		t.Errorf("%v, want a LimitError with %q", err, words)
	}
}

func mustBeEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
}
