// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestConvertThenCompareBothWays(t *testing.T) {
	src, middle, dst := newImage(t, "a", FormatRaw), newImage(t, "b,c", FormatQCOW2), newImage(t, "d", FormatRaw)
	guestWrites(t, src, basePatterns...)
	guestWrites(t, middle, "write -P 0x77 30M 4M") // old data of dst must not shine through
	var done, total int64
	opts := ConvertOptions{Progress: func(d, n int64) { done, total = d, n }}
	if err := Convert(t.Context(), src, middle, opts); err != nil {
		t.Fatal(err)
	}
	if done != overlayTestBytes || total != overlayTestBytes {
		t.Errorf("last progress %d of %d", done, total)
	}
	if err := Compare(t.Context(), src, middle, CompareOptions{}); err != nil {
		t.Error(err)
	}
	if err := Convert(t.Context(), middle, dst, ConvertOptions{DstIsZero: true}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content(t, src), content(t, dst)) {
		t.Error("the bytes differ")
	}
}

func TestCompareNamesTheSectorThatDiffers(t *testing.T) {
	src, dst := newImage(t, "a", FormatRaw), newImage(t, "b", FormatQCOW2)
	guestWrites(t, dst, "write -P 9 20971520 512")
	var mismatch *MismatchError
	if err := Compare(t.Context(), src, dst, CompareOptions{}); !errors.As(err, &mismatch) || mismatch.Offset != 20971520 {
		t.Errorf("error %v", err)
	}
}

func TestSizesMustBeEqual(t *testing.T) {
	src, dst := newImage(t, "a", FormatRaw), Image{Path: t.TempDir() + "/b", Format: FormatQCOW2}
	if err := Create(t.Context(), dst, overlayTestBytes+512, NewFile{}); err != nil {
		t.Fatal(err)
	}
	var size *SizeError
	if err := Convert(t.Context(), src, dst, ConvertOptions{}); !errors.As(err, &size) || size.WantBytes != overlayTestBytes {
		t.Errorf("Convert: %v", err)
	}
	if err := Compare(t.Context(), src, dst, CompareOptions{}); !errors.As(err, &size) {
		t.Errorf("Compare: %v", err)
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

func TestAnImageWithABackingFileIsNotConverted(t *testing.T) {
	secret := newImage(t, "secret", FormatRaw)
	evil := Image{Path: filepath.Join(t.TempDir(), "evil"), Format: FormatQCOW2}
	if err := CreateOverlay(t.Context(), evil.Path, secret, overlayTestBytes, NewFile{}); err != nil {
		t.Fatal(err)
	}
	var refused *ImageError
	if err := Convert(t.Context(), evil, newImage(t, "out", FormatRaw), ConvertOptions{}); !errors.As(err, &refused) {
		t.Errorf("error %v", err)
	}
}

func TestARawImageThatLooksLikeQcow2IsCopiedAsBytes(t *testing.T) {
	secret := newImage(t, "secret", FormatRaw)
	guestWrites(t, secret, "write -P 0x73 0 4k")
	evil := newImage(t, "evil", FormatRaw)
	header := overlayBytes(t, secret, overlayTestBytes)
	f, err := os.OpenFile(evil.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(header, 0); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	out := newImage(t, "out", FormatQCOW2)
	if err := Convert(t.Context(), evil, out, ConvertOptions{}); err != nil {
		t.Fatal(err)
	}
	got := content(t, out)
	if !bytes.Equal(got[:len(header)], header) || bytes.Contains(got, bytes.Repeat([]byte{0x73}, 512)) {
		t.Error("the copy is not the bytes of the volume")
	}
}

func TestAFailureCarriesTheWordsOfQemuImg(t *testing.T) {
	_, err := run(t.Context(), []string{"info", "-f", "raw", "/nowhere"}, childOptions{})
	var failed *CommandError
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "No such file") {
		t.Errorf("error %v", err)
	}
}

func TestCancelKillsAChildThatIsStopped(t *testing.T) {
	src, dst := newImage(t, "a", FormatRaw), newImage(t, "b", FormatQCOW2)
	guestWrites(t, src, basePatterns...)
	ctx, cancel := context.WithCancel(t.Context())
	err := Convert(ctx, src, dst, ConvertOptions{Throttle: func(ctx context.Context, _ int64) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestAThrottleErrorEndsTheChild(t *testing.T) {
	src, dst := newImage(t, "a", FormatRaw), newImage(t, "b", FormatQCOW2)
	guestWrites(t, src, basePatterns...)
	enough := errors.New("enough")
	err := Convert(t.Context(), src, dst, ConvertOptions{Throttle: func(context.Context, int64) error { return enough }})
	if !errors.Is(err, enough) {
		t.Errorf("error %v", err)
	}
}

// TestStoppedChildDiesWithUs kills the process whose child is stopped.
func TestStoppedChildDiesWithUs(t *testing.T) {
	const role = "VOLFERRY_TEST_CONVERT"
	if pair := os.Getenv(role); pair != "" {
		src, dst, _ := strings.Cut(pair, "|")
		_ = Convert(t.Context(), Image{Path: src, Format: FormatRaw}, Image{Path: dst, Format: FormatQCOW2}, ConvertOptions{
			Throttle: func(context.Context, int64) error {
				_, _ = os.Stdout.WriteString("stopped\n")
				select {}
			},
		})
		return
	}
	src, dst := newImage(t, "a", FormatRaw), newImage(t, "b", FormatQCOW2)
	guestWrites(t, src, basePatterns...)
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStoppedChildDiesWithUs$")
	parent.Env = append(os.Environ(), role+"="+src.Path+"|"+dst.Path)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	child, err := unix.PidfdOpen(childOf(t, parent.Process.Pid), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(child)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	exited := []unix.PollFd{{Fd: int32(child), Events: unix.POLLIN}}
	if n, err := unix.Poll(exited, 10_000); err != nil || n != 1 {
		t.Errorf("the stopped child outlived its parent (%v)", err)
	}
}

// childOf is the child of a process, by the kernel's word: one that was stopped
// early has no file open yet that would tell.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // a thread that ended
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
