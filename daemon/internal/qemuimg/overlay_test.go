// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const overlayTestBytes = 64 << 20

// guestWrites lets qemu-io change an image as a guest might.
func guestWrites(t *testing.T, image Image, commands ...string) {
	t.Helper()
	args := []string{"--image-opts", "-d", "unmap"}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	args = append(args, image.options("", protocolAt(t, image.Path))+",discard=unmap")
	if out, err := exec.CommandContext(t.Context(), "qemu-io", args...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-io: %v\n%s", err, out)
	}
}

// protocolAt returns the protocol driver for the file at a path.
func protocolAt(t *testing.T, path string) string {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	protocol, err := protocolOf(path, st)
	if err != nil {
		t.Fatal(err)
	}
	return protocol
}

// patterns of data, of zeroes and of discards, across cluster borders.
var (
	basePatterns    = []string{"write -P 0x11 0 24M", "write -P 0x12 40M 8M"}
	overlayPatterns = []string{
		"write -P 0x21 4k 12k", "write -P 0x22 60k 8k", "write -z 1M 1M", "discard 3M 192k", "write -z 5000k 4k",
		"write -P 0x23 20M 16M", "write -P 0x24 44M 12M", "discard 50M 1M", "write -P 0x25 67107840 1k",
	}
)

func newImage(t *testing.T, name, format string) Image {
	t.Helper()
	image := Image{Path: filepath.Join(t.TempDir(), name), Format: format}
	if err := Create(t.Context(), image, overlayTestBytes, NewFile{}); err != nil {
		t.Fatal(err)
	}
	return image
}

// content returns the content that a guest reads from the image.
func content(t *testing.T, image Image) []byte {
	t.Helper()
	out := newImage(t, "content.raw", FormatRaw)
	opts := image.options("", protocolAt(t, image.Path))
	cmd := exec.CommandContext(t.Context(), "qemu-img", "convert", "-n", "--image-opts", "--target-image-opts", opts, out.options("", protocolFile))
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("read %s: %v\n%s", image, err, msg)
	}
	b, err := os.ReadFile(out.Path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOverlayIsEmptyPrivateAndOverExactlyItsBacking(t *testing.T) {
	path := filepath.Join(t.TempDir(), "o,v:l")
	backing := Image{Path: "/nowhere/to,be:opened", Format: FormatRaw}
	if err := CreateOverlay(t.Context(), path, backing, 12345*512, NewFile{}); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if empty, err := CheckOverlay(path, backing, 12345*512); err != nil || !empty {
		t.Errorf("CheckOverlay: empty %v, %v", empty, err)
	}
	var refused *ImageError
	for _, other := range []Image{{Path: "/nowhere/else", Format: FormatRaw}, {Path: backing.Path, Format: FormatQCOW2}} {
		if _, err := CheckOverlay(path, other, 12345*512); !errors.As(err, &refused) {
			t.Errorf("over %s: %v", other, err)
		}
	}
	var size *SizeError
	if _, err := CheckOverlay(path, backing, 12346*512); !errors.As(err, &size) {
		t.Errorf("other size: %v", err)
	}
	if _, err := CheckOverlay(path+"x", backing, 512); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}

func TestCreateOverlayAgainKeepsAnEmptyOneAndNeverTouchesAnother(t *testing.T) {
	base := newImage(t, "base", FormatRaw)
	path := filepath.Join(t.TempDir(), "ovl")
	for range 2 {
		if err := CreateOverlay(t.Context(), path, base, overlayTestBytes, NewFile{}); err != nil {
			t.Fatal(err)
		}
	}
	var refused *ImageError
	if err := CreateOverlay(t.Context(), path, Image{Path: "/other", Format: FormatRaw}, overlayTestBytes, NewFile{}); !errors.As(err, &refused) {
		t.Errorf("other backing: %v", err)
	}
	guestWrites(t, Image{Path: path, Format: FormatQCOW2}, "write -P 1 0 4k")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := CreateOverlay(t.Context(), path, base, overlayTestBytes, NewFile{}); !errors.As(err, &refused) {
		t.Errorf("overlay with data: %v", err)
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the overlay with data changed (%v)", err)
	}
	left, err := filepath.Glob(path + "?*")
	if err != nil || left != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestCommitFoldsIntoAnImageThatTheHeaderDoesNotName(t *testing.T) {
	for _, tc := range []struct{ src, dst string }{
		{FormatRaw, FormatRaw}, {FormatRaw, FormatQCOW2}, {FormatQCOW2, FormatRaw}, {FormatQCOW2, FormatQCOW2},
	} {
		t.Run(tc.src+" to "+tc.dst, func(t *testing.T) {
			src, dst := newImage(t, "s,r:c", tc.src), newImage(t, "d,s:t", tc.dst)
			guestWrites(t, src, basePatterns...)
			guestWrites(t, dst, basePatterns...)
			ovl := Image{Path: filepath.Join(t.TempDir(), "ovl"), Format: FormatQCOW2}
			if err := CreateOverlay(t.Context(), ovl.Path, src, overlayTestBytes, NewFile{}); err != nil {
				t.Fatal(err)
			}
			guestWrites(t, ovl, overlayPatterns...)
			want, srcBefore := content(t, ovl), content(t, src)
			ovlBefore, err := os.ReadFile(ovl.Path)
			if err != nil {
				t.Fatal(err)
			}

			killed, kill := context.WithCancel(t.Context())
			err = CommitOffline(killed, ovl.Path, dst, CommitOptions{Progress: func(f float64) {
				if f > 0.3 {
					kill()
				}
			}})
			t.Logf("interrupted commit: %v", err)
			var fraction float64
			err = CommitOffline(t.Context(), ovl.Path, dst, CommitOptions{Progress: func(f float64) { fraction = f }})
			if err != nil {
				t.Fatal(err)
			}
			if fraction != 1 {
				t.Errorf("last progress %v", fraction)
			}
			if !bytes.Equal(want, content(t, dst)) {
				t.Error("dst is not what the guest wrote")
			}
			if !bytes.Equal(srcBefore, content(t, src)) {
				t.Error("src changed")
			}
			if after, err := os.ReadFile(ovl.Path); err != nil || !bytes.Equal(ovlBefore, after) {
				t.Errorf("the overlay changed (%v): a repeat would not be safe", err)
			}
		})
	}
}

func TestCommitIntoAnImageOfAnotherSizeIsRefusedUntouched(t *testing.T) {
	src := newImage(t, "src", FormatRaw)
	ovl := filepath.Join(t.TempDir(), "ovl")
	if err := CreateOverlay(t.Context(), ovl, src, overlayTestBytes, NewFile{}); err != nil {
		t.Fatal(err)
	}
	small := Image{Path: filepath.Join(t.TempDir(), "small"), Format: FormatRaw}
	if err := Create(t.Context(), small, overlayTestBytes-512, NewFile{}); err != nil {
		t.Fatal(err)
	}
	var size *SizeError
	if err := CommitOffline(t.Context(), ovl, small, CommitOptions{}); !errors.As(err, &size) {
		t.Errorf("error %v", err)
	}
}

// loopDevice makes a block device of an image.
func loopDevice(t *testing.T, backing Image) Image {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for a loop device")
	}
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", backing.Path).Output()
	if err != nil {
		t.Fatal(err)
	}
	device := Image{Path: strings.TrimSpace(string(out)), Format: FormatRaw}
	t.Cleanup(func() {
		if err := exec.Command("losetup", "--detach", device.Path).Run(); err != nil { //nolint:noctx // the test's has ended
			t.Error(err)
		}
	})
	return device
}

func TestCommitFoldsIntoABlockDevice(t *testing.T) {
	src, backing := newImage(t, "src", FormatRaw), newImage(t, "loop", FormatRaw)
	guestWrites(t, src, basePatterns...)
	dst := loopDevice(t, backing)
	qemuImg(t, "convert", "-n", "-f", "raw", "-O", "raw", src.Path, dst.Path)
	ovl := Image{Path: filepath.Join(t.TempDir(), "ovl"), Format: FormatQCOW2}
	if err := CreateOverlay(t.Context(), ovl.Path, src, overlayTestBytes, NewFile{}); err != nil {
		t.Fatal(err)
	}
	guestWrites(t, ovl, overlayPatterns...)
	if err := CommitOffline(t.Context(), ovl.Path, dst, CommitOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(dst.Path)
	if err != nil || !bytes.Equal(got, content(t, ovl)) {
		t.Errorf("the device is not what the guest wrote (%v)", err)
	}
}
