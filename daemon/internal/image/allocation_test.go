// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/test/lab"
)

func TestAFileIsThickThatTakesAllOfItsVolume(t *testing.T) {
	const size = 8 << 20
	dir := t.TempDir()
	s := image.Storage{Files: openfile.Anywhere()}
	thick := func(path string) bool {
		t.Helper()
		is, err := s.Thick(path, size)
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	raw := filepath.Join(dir, "a.raw")
	if err := errors.Join(os.WriteFile(raw, []byte("data"), 0o600), os.Truncate(raw, size)); err != nil {
		t.Fatal(err)
	}
	if thick(raw) {
		t.Error("a sparse file is thick")
	}
	if err := s.Allocate(t.Context(), raw, size); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(raw); err != nil || len(text) != size || !strings.HasPrefix(string(text), "data\x00") {
		t.Errorf("it reads otherwise (%d bytes, %v)", len(text), err)
	}
	if !thick(raw) {
		t.Error("a file that was given all of its room is not thick")
	}
	for name, preallocation := range map[string]bool{"off": false, "metadata": false, "falloc": true, "full": true} {
		path := filepath.Join(dir, name+".qcow2")
		if out, err := exec.CommandContext(t.Context(), "qemu-img", "create", "-q", "-f", "qcow2", "-o", "preallocation="+name, path, "8M").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if thick(path) != preallocation {
			t.Errorf("with preallocation=%s it is thick: %v", name, !preallocation)
		}
	}
}

func TestTheRoomOfAQcow2ImageIsBeyondItsEndAndTheImageIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.qcow2")
	s := image.Storage{Files: openfile.Anywhere()}
	if err := s.Create(t.Context(), hv.Image{Path: path, Format: "qcow2", Type: hv.SourceFile}, 64<<20, image.NewFile{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Allocate(t.Context(), path, 65<<20); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"qemu-io", "-f", "qcow2", "-c", "write -P 7 32M 8M", "-c", "read -P 7 32M 8M", "-c", "read -P 0 0 32M", path},
		{"qemu-img", "check", "-f", "qcow2", path},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil || strings.Contains(string(out), "verification failed") {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
	if is, err := s.Thick(path, 64<<20); err != nil || !is {
		t.Errorf("it is thick: %v (%v)", is, err)
	}
}

// chattr runs a filesystem tool that changes or shows a file's attributes.
func chattr(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

func mounted(t *testing.T, fstype string, sizeMiB int64) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root to mount a filesystem")
	}
	if program := lab.LacksFS(fstype); program != "" {
		t.Skipf("SKIPPED: this machine has no %s", program)
	}
	fs, err := lab.LoopFS(t.Context(), filepath.Join(t.TempDir(), fstype), fstype, sizeMiB)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fs.Close(); err != nil {
			t.Error(err)
		}
	})
	return fs.Dir
}

func TestAFileThatIsWrittenInPlaceStaysSoWhereItGoesAndUnderItsOverlay(t *testing.T) {
	const size = 1 << 20
	dir := mounted(t, "btrfs", 200)
	s := image.Storage{Files: openfile.Anywhere()}
	src := filepath.Join(dir, "src.raw")
	if err := os.WriteFile(src, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	chattr(t, "chattr", "+C", src)
	if err := os.Truncate(src, size); err != nil {
		t.Fatal(err)
	}
	file := func(name string) hv.Image {
		_, format, _ := strings.Cut(name, ".")
		return hv.Image{Type: hv.SourceFile, Path: filepath.Join(dir, name), Format: format}
	}
	made := file("made.raw")
	if err := os.WriteFile(made.Path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	left, err := s.StoreLike(t.Context(), made.Path, src)
	if err != nil || len(left) > 0 {
		t.Errorf("of what a pool has made %v is left (%v)", left, err)
	}
	for name, err := range map[string]error{
		"dst.raw":     s.Create(t.Context(), file("dst.raw"), size, image.NewFile{Like: src}),
		"dst.qcow2":   s.Create(t.Context(), file("dst.qcow2"), size, image.NewFile{Like: src}),
		"ovl.qcow2":   s.CreateOverlay(t.Context(), file("ovl.qcow2").Path, file("src.raw"), size, nil),
		"other.qcow2": s.CreateOverlay(t.Context(), file("other.qcow2").Path, file("plain.raw"), size, nil),
		"made.raw":    nil,
	} {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		flags, _, _ := strings.Cut(chattr(t, "lsattr", file(name).Path), " ")
		if in := strings.Contains(flags, "C"); in != (name != "other.qcow2") {
			t.Errorf("%s is written in place: %v", name, in)
		}
	}
	if left, err := s.AttributesLost(src, dir, true); err != nil || len(left) != 1 {
		t.Errorf("what another program makes and fills lacks %v (%v)", left, err)
	}
	if left, err := s.AttributesLost(src, dir, false); err != nil || len(left) != 0 {
		t.Errorf("what is made there lacks %v (%v)", left, err)
	}
	if left, err := s.AttributesLost(src, t.TempDir(), false); err != nil || len(left) != 1 {
		t.Errorf("on a filesystem that has no such thing it lacks %v (%v)", left, err)
	}
}

func TestAFileKeepsItsExtentSizeHintAndItsProject(t *testing.T) {
	dir := mounted(t, "xfs", 300)
	s := image.Storage{Files: openfile.Anywhere()}
	src := filepath.Join(dir, "src.raw")
	if err := os.WriteFile(src, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	chattr(t, "xfs_io", "-c", "extsize 1m", "-c", "chproj 42", src)
	dst := filepath.Join(dir, "dst.raw")
	if err := s.Create(t.Context(), hv.Image{Type: hv.SourceFile, Path: dst, Format: "raw"}, 4<<20, image.NewFile{Like: src}); err != nil {
		t.Fatal(err)
	}
	if said := chattr(t, "xfs_io", "-c", "extsize", "-c", "lsproj", dst); !strings.Contains(said, "[1048576]") || !strings.Contains(said, "projid = 42") {
		t.Errorf("dst has %s", said)
	}
	left, err := s.AttributesLost(src, t.TempDir(), false)
	if err != nil || len(left) == 0 || !strings.Contains(left[0], "extent size hint (1048576 bytes)") {
		t.Errorf("on ext4 it lacks %v (%v)", left, err)
	}
}

func TestAFilesystemThatGivesNoRoomAheadSaysSo(t *testing.T) {
	dir := mounted(t, "exfat", 64)
	s := image.Storage{Files: openfile.Anywhere()}
	if how, err := s.Allocating(dir); err != nil || how.Ahead || how.Sparse {
		t.Errorf("of exFAT: %+v (%v)", how, err)
	}
	if how, err := s.Allocating(t.TempDir()); err != nil || !how.Ahead || !how.Sparse {
		t.Errorf("of this one: %+v (%v)", how, err)
	}
	path := filepath.Join(dir, "a.raw")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := s.Allocate(context.Background(), path, 1<<20); !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("%v, want ErrUnsupported", err)
	}
	if is, err := s.Thick(path, 1<<20); err != nil || is {
		t.Errorf("a file of which all takes room is thick: %v (%v)", is, err)
	}
}
