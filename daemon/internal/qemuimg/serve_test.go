// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/nbd"
	"github.com/volferry/volferry/daemon/internal/storagedaemon"
)

// serve serves an image until the end of the test, or until it is closed.
func serve(t *testing.T, image Image, writable bool, is func(*os.File) error) (*nbd.Export, error) {
	t.Helper()
	opts := ServeOptions{Writable: writable, Is: is}
	if image.LUKS {
		opts.Passphrase = passphrase
	}
	conn, err := Serve(t.Context(), image, opts)
	if err != nil {
		return nil, err
	}
	export, err := nbd.OpenOn(t.Context(), conn, storagedaemon.ExportName, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := export.Close(); err != nil {
			t.Error(err)
		}
	})
	return export, nil
}

// servedContent returns the whole served content of an image.
func servedContent(t *testing.T, image Image) []byte {
	t.Helper()
	export, err := serve(t, image, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, export.SizeBytes())
	_, err = export.ReadAt(got, 0)
	if err = errors.Join(err, export.Close()); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestWhatIsWrittenToAServedImageIsThere(t *testing.T) {
	image := newImage(t, "b,c", FormatQCOW2)
	guestWrites(t, image, basePatterns...)
	export, err := serve(t, image, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	written := bytes.Repeat([]byte("written"), 1<<20)
	if _, err := export.WriteAt(written, 12345); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(export.ZeroAt(30<<20, 20<<20), export.Flush(), export.Close()); err != nil {
		t.Fatal(err)
	}
	got := content(t, image)
	if !bytes.Equal(got[12345:12345+len(written)], written) || got[0] != 0x11 || got[45<<20] != 0 {
		t.Error("the image has something else")
	}
	again, err := serve(t, image, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if until, data, err := again.Extent(30 << 20); err != nil || data || until < 50<<20 {
		t.Errorf("what was made zeros is data %t until %d, %v", data, until, err)
	}
}

// A guest, or another copy, may write to it.
func TestAnImageThatIsWrittenByAnotherProgramOfQEMUIsNotServed(t *testing.T) {
	image := newImage(t, "a", FormatQCOW2)
	if _, err := serve(t, image, true, nil); err != nil {
		t.Fatal(err)
	}
	for _, writable := range []bool{false, true} {
		if _, err := serve(t, image, writable, nil); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), image.Path) {
			t.Errorf("writable %t: %v", writable, err)
		}
	}
}

func TestAServerIsBoundedAsQemuImgIs(t *testing.T) {
	image := newImage(t, "a", FormatQCOW2)
	if _, err := serve(t, image, false, nil); err != nil {
		t.Fatal(err)
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", childOf(t, os.Getpid())))
	if err != nil || !regexp.MustCompile(`Max address space +`+strconv.Itoa(childAddressSpaceBytes)).Match(limits) || !regexp.MustCompile(`Max core file size +0 `).Match(limits) {
		t.Errorf("its limits are %v\n%s", err, limits)
	}
}

func TestAServerThatIsNotInstalledIsNamed(t *testing.T) {
	image := newImage(t, "a", FormatQCOW2)
	t.Setenv("PATH", t.TempDir())
	if _, err := serve(t, image, false, nil); !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "qemu-system-common") {
		t.Errorf("got %v", err)
	}
}

func TestCreateNeverReplaces(t *testing.T) {
	for _, format := range []string{FormatRaw, FormatQCOW2} {
		image := newImage(t, "x", format)
		if err := Create(t.Context(), image, 512, NewFile{}); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: %v", format, err)
		}
		if n, err := VirtualSize(t.Context(), image); err != nil || n != overlayTestBytes {
			t.Errorf("%s: size %d, %v", format, n, err)
		}
		if n, err := AllocatedBytes(image.Path); err != nil || n > 1<<20 {
			t.Errorf("%s: %d bytes allocated, %v", format, n, err)
		}
	}
}

func TestAnImageWithABackingFileIsNotServed(t *testing.T) {
	secret := newImage(t, "secret", FormatRaw)
	evil := Image{Path: filepath.Join(t.TempDir(), "evil"), Format: FormatQCOW2}
	if err := CreateOverlay(t.Context(), evil.Path, secret, overlayTestBytes, NewFile{}); err != nil {
		t.Fatal(err)
	}
	var refused *ImageError
	if _, err := serve(t, evil, false, nil); !errors.As(err, &refused) {
		t.Errorf("error %v", err)
	}
}

func TestAFailureCarriesTheWordsOfQemuImg(t *testing.T) {
	_, err := run(t.Context(), []string{"info", "-f", "raw", "/nowhere"}, childOptions{})
	var failed *CommandError
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "No such file") {
		t.Errorf("error %v", err)
	}
}

// TestAProgramOfQEMUDiesWithUs kills the process that has started a program. The program does not
// end by itself.
func TestAProgramOfQEMUDiesWithUs(t *testing.T) {
	const role = "VOLFERRY_TEST_ROLE"
	switch what, path, _ := strings.Cut(os.Getenv(role), " "); what {
	case "server":
		if _, err := Serve(t.Context(), Image{Path: path, Format: FormatQCOW2}, ServeOptions{Writable: true}); err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("begun\n")
		select {}
	case "qemu-img":
		_, _ = run(t.Context(), []string{"info"}, childOptions{progress: func(float64) { _, _ = os.Stdout.WriteString("begun\n") }})
		return
	}
	image := newImage(t, "a", FormatQCOW2)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "qemu-img"), []byte("#!/bin/sh\necho '(50.0/100%)'\nexec sleep 600\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"server", "qemu-img"} {
		parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAProgramOfQEMUDiesWithUs$")
		parent.Env = append(os.Environ(), role+"="+what+" "+image.Path, "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := parent.StdoutPipe()
		if err == nil {
			err = parent.Start()
		}
		if err == nil {
			_, err = out.Read(make([]byte, 6))
		}
		if err != nil {
			t.Fatal(err)
		}
		child, err := unix.PidfdOpen(childOf(t, parent.Process.Pid), 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := parent.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = parent.Wait()
		exited := []unix.PollFd{{Fd: int32(child), Events: unix.POLLIN}}
		if n, err := unix.Poll(exited, 10_000); err != nil || n != 1 {
			t.Errorf("the %s outlived its parent (%v)", what, err)
		}
		_ = unix.Close(child)
	}
}

// childOf returns the child of a process, from /proc.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // an ended thread
		}
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			return child
		}
	}
	t.Fatal("the process has no child: the test proves nothing")
	return 0
}
