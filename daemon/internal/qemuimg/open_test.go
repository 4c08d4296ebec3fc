// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/storagedaemon"
)

// swapBefore replaces the path of an image when a QEMU program starts: by a link to a file of the
// host, as any user who may write to the image's directory could do.
func swapBefore(t *testing.T, program string, image Image) (victim string) {
	t.Helper()
	real, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	victim = filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, bytes.Repeat([]byte("root's"), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	once := "if mkdir '" + filepath.Join(dir, "once") + "' 2>/dev/null; then "
	script := "#!/bin/sh\n" + once + "mv '" + image.Path + "' '" + image.Path + ".was' && ln -s '" + victim + "' '" + image.Path + "'; fi\nexec " + real + ` "$@"` + "\n"
	if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return victim
}

// assertNotTouched checks that a victim is unchanged, and puts the image back.
func assertNotTouched(t *testing.T, victim string, image Image) {
	t.Helper()
	got, err := os.ReadFile(victim)
	if err != nil || !bytes.Equal(got, bytes.Repeat([]byte("root's"), 1000)) {
		t.Errorf("the file of somebody else was written (%v)", err)
	}
	if err := os.Rename(image.Path+".was", image.Path); err != nil {
		t.Fatal(err)
	}
}

func TestAnImageThatIsSwappedAfterTheLookIsTheOneThatIsWritten(t *testing.T) {
	for _, format := range []string{FormatRaw, FormatQCOW2} {
		t.Run("serve "+format, func(t *testing.T) {
			dst := newImage(t, "dst", format)
			victim := swapBefore(t, storagedaemon.Program, dst)
			export, err := serve(t, dst, true, nil)
			if err == nil {
				_, err = export.WriteAt([]byte("written"), 0)
			}
			if err = errors.Join(err, export.Close()); err != nil {
				t.Fatal(err)
			}
			assertNotTouched(t, victim, dst)
			if got := content(t, dst); !bytes.HasPrefix(got, []byte("written")) {
				t.Error("the image that was looked at has not the content")
			}
		})
		t.Run("commit into "+format, func(t *testing.T) {
			dst := newImage(t, "dst", format)
			ovl := Image{Path: filepath.Join(t.TempDir(), "ovl"), Format: FormatQCOW2}
			if err := CreateOverlay(t.Context(), ovl.Path, dst, overlayTestBytes, NewFile{}); err != nil {
				t.Fatal(err)
			}
			guestWrites(t, ovl, overlayPatterns...)
			want := content(t, ovl)
			victim := swapBefore(t, "qemu-img", dst)
			if err := CommitOffline(t.Context(), ovl.Path, dst, CommitOptions{}); err != nil {
				t.Error(err)
			}
			assertNotTouched(t, victim, dst)
			if !bytes.Equal(want, content(t, dst)) {
				t.Error("the image that was looked at has not the content")
			}
		})
	}
}

func TestADstThatIsNotTheOneIsNotWritten(t *testing.T) {
	dst := newImage(t, "dst", FormatQCOW2)
	before, err := os.ReadFile(dst.Path)
	if err != nil {
		t.Fatal(err)
	}
	another := errors.New("another file")
	if _, err := serve(t, dst, true, func(*os.File) error { return another }); !errors.Is(err, another) {
		t.Errorf("error %v", err)
	}
	if after, err := os.ReadFile(dst.Path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("it was written (%v)", err)
	}
}

func TestWhatIsNoImageIsNotOpenedAndNotWaitedFor(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	var refused *ImageError
	for _, path := range []string{fifo, "/dev/null", t.TempDir()} {
		if _, err := VirtualSize(t.Context(), Image{Path: path, Format: FormatRaw}); !errors.As(err, &refused) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestAnOverlayIsNoLink(t *testing.T) {
	backing := newImage(t, "backing", FormatRaw)
	dir := t.TempDir()
	if err := CreateOverlay(t.Context(), filepath.Join(dir, "ovl"), backing, overlayTestBytes, NewFile{}); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("ovl", link); err != nil {
		t.Fatal(err)
	}
	if _, err := CheckOverlay(link, backing, overlayTestBytes); err == nil {
		t.Error("a link is taken for an overlay")
	}
}

// The error names the image, and not the number of its descriptor.
func TestAFailureNamesThePath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it only reads
	_, err = run(t.Context(), []string{"info", "-f", FormatQCOW2, childFile(0)}, childOptions{files: []*os.File{f}})
	var failed *CommandError
	if !errors.As(err, &failed) || !bytes.Contains([]byte(err.Error()), []byte(path)) {
		t.Errorf("error %v", err)
	}
}
