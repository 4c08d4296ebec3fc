// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/copy/copytest"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

// overlayOver makes an overlay over an image, with these qcow2 options.
func overlayOver(t *testing.T, base copy.Image, options string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "overlay.qcow2")
	args := []string{"create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", base.Path, "-o", options, path, strconv.FormatInt(base.SizeBytes, 10)}
	if out, err := exec.CommandContext(t.Context(), "qemu-img", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// guestDoes lets QEMU change an overlay as a guest with this seed does: writes, zeros and discards
// of all sizes.
func guestDoes(t *testing.T, overlay string, sizeBytes int64, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	args := []string{"-d", "unmap", "--image-opts", "driver=qcow2,discard=unmap,file.driver=file,file.filename=" + overlay}
	for range 60 {
		n := (1 + rng.Int64N(1<<rng.IntN(11))) * 512
		off := rng.Int64N(sizeBytes/512) * 512
		n = min(n, sizeBytes-off)
		do := []string{
			fmt.Sprintf("write -P %d %d %d", 1+rng.IntN(255), off, n), fmt.Sprintf("write -P %d %d %d", 1+rng.IntN(255), off, n),
			fmt.Sprintf("write -z %d %d", off, n), fmt.Sprintf("write -z -u %d %d", off, n), fmt.Sprintf("discard %d %d", off, n),
		}[rng.IntN(5)]
		args = append(args, "-c", do)
	}
	if out, err := exec.CommandContext(t.Context(), "qemu-io", args...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-io: %v: %s", err, out)
	}
}

func foldInto(ctx context.Context, overlay string, into copy.Image, open copy.OpenEnd) error {
	return copy.Fold(ctx, copy.FoldSpec{Overlay: overlay, Into: into, OpenEnd: open})
}

// The reference is qemu-img: the same result from the same overlay, with as few changes.
func TestAFoldWritesWhatAnOverlayHasOfItsOwnAndNothingElse(t *testing.T) {
	for options, size := range map[string]int64{
		"compat=1.1,cluster_size=64k,extended_l2=on": 16*miB + 4096, // Volferry's options
		"compat=1.1,cluster_size=16k,extended_l2=on": 5*miB + 4096,
		"compat=1.1,cluster_size=64k":                16 * miB,
		"compat=1.1,cluster_size=4k":                 4*miB + 12288,
		"compat=1.1,cluster_size=1M":                 9 * miB,
	} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprint(options, " ", seed), func(t *testing.T) {
				// Where the overlay has nothing, dst differs from the overlay's backing image.
				base, dst := raw(t, "base", size, [2]int64{0, size / 2}), raw(t, "dst", size, [2]int64{miB, size - 2*miB})
				want := rawAt(t, filepath.Join(t.TempDir(), "want"), size, [2]int64{miB, size - 2*miB})
				overlay := overlayOver(t, base, options)
				guestDoes(t, overlay, size, seed)
				before := mustRead(t, overlay)
				if err := qemuimg.CommitOffline(t.Context(), overlay, qemuimg.Image{Path: want.Path, Format: "raw"}, qemuimg.CommitOptions{}); err != nil {
					t.Fatal(err)
				}
				for range 2 { // a fold may be repeated
					if err := foldInto(t.Context(), overlay, dst, copy.OpenFile); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(read(t, dst), read(t, want)) {
						t.Fatal("qemu-img makes something else of the overlay")
					}
				}
				if !bytes.Equal(before, mustRead(t, overlay)) {
					t.Error("the overlay was changed")
				}
			})
		}
	}
}

// flip changes one byte of a file.
func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte{^mustRead(t, path)[at]}, at)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAnOverlayIsFoldedIntoAnExport(t *testing.T) {
	const size = 16 * miB
	file := raw(t, "dst", size, [2]int64{0, size})
	want := rawAt(t, filepath.Join(t.TempDir(), "want"), size, [2]int64{0, size})
	dst, export := served(t, file)
	overlay := overlayOver(t, raw(t, "base", size), "compat=1.1,cluster_size=64k,extended_l2=on")
	guestDoes(t, overlay, size, 7)
	if err := qemuimg.CommitOffline(t.Context(), overlay, qemuimg.Image{Path: want.Path, Format: "raw"}, qemuimg.CommitOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := foldInto(t.Context(), overlay, dst, nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, file), read(t, want)) {
		t.Error("the fold is something else")
	}
	if err := export.Close(); err != nil {
		t.Fatal(err)
	}
	if err := foldInto(t.Context(), overlay, dst, nil); err == nil {
		t.Error("folded into an export whose server is away")
	}
}

// An overlay with its backing image must equal a copy of the backing image after a fold of the
// overlay.
func TestAnOverlayIsComparedWhereAnEndIsAtAnAddress(t *testing.T) {
	const size = 16*miB + 4096
	data := [2]int64{miB, 5 * miB}
	base, file := raw(t, "base", size, data), raw(t, "dst", size, data)
	overlay := overlayOver(t, base, "compat=1.1,cluster_size=64k,extended_l2=on")
	guestDoes(t, overlay, size, 3)
	below, _ := served(t, base)
	dst, _ := served(t, file)
	for name, ends := range map[string][2]copy.Image{"both": {below, dst}, "src": {below, file}, "dst": {base, dst}} {
		src := copy.Image{Path: overlay, Format: qemuimg.FormatQCOW2, SizeBytes: size, Backing: &qemuimg.Image{Path: ends[0].Path, Format: qemuimg.FormatRaw}}
		if err := os.WriteFile(file.Path, mustRead(t, base.Path), 0o600); err != nil {
			t.Fatal(err)
		}
		var mismatch *copy.MismatchError
		if err := copy.Compare(t.Context(), copy.Spec{Src: src, Dst: ends[1]}); !errors.As(err, &mismatch) {
			t.Errorf("%s, before the fold: %v", name, err)
		}
		if err := foldInto(t.Context(), overlay, file, copy.OpenFile); err != nil {
			t.Fatal(err)
		}
		if err := copy.Compare(t.Context(), copy.Spec{Src: src, Dst: ends[1]}); err != nil {
			t.Errorf("%s, after the fold: %v", name, err)
		}
		flip(t, file.Path, size-1)
		if err := copy.Compare(t.Context(), copy.Spec{Src: src, Dst: ends[1]}); !errors.As(err, &mismatch) || mismatch.Offset != size-1 {
			t.Errorf("%s, with another last byte: %v", name, err)
		}
	}
}

// TestAnOverlayIsFoldedIntoAndComparedWithTheBeginningOfAnExport: the rest of the export is neither
// changed nor compared.
func TestAnOverlayIsFoldedIntoAndComparedWithTheBeginningOfAnExport(t *testing.T) {
	const size, whole = 16*miB + 512, 17 * miB
	larger := func(name string) (file, part copy.Image) {
		file = raw(t, name, whole, [2]int64{miB, 5 * miB})
		part, _ = served(t, file)
		part.SizeBytes, part.Slice = size, true
		return file, part
	}
	srcFile, src := larger("src")
	dstFile, dst := larger("dst")
	fill(t, srcFile, [2]int64{size, whole - size})
	overlay := overlayOver(t, copy.Image{Path: src.Path, SizeBytes: size}, "compat=1.1,cluster_size=64k,extended_l2=on")
	guestDoes(t, overlay, size, 3)
	top := copy.Image{Path: overlay, Format: qemuimg.FormatQCOW2, SizeBytes: size, Backing: &qemuimg.Image{Path: src.Path, Format: qemuimg.FormatRaw, SliceBytes: size}}
	rest := read(t, dstFile)[size:]
	if err := foldInto(t.Context(), overlay, dst, nil); err != nil {
		t.Fatal(err)
	}
	if err := copy.Compare(t.Context(), copy.Spec{Src: top, Dst: dst}); err != nil {
		t.Errorf("after the fold: %v", err)
	}
	if !bytes.Equal(read(t, dstFile)[size:], rest) {
		t.Error("the fold wrote behind the volume")
	}
	flip(t, dstFile.Path, size-1)
	var mismatch *copy.MismatchError
	if err := copy.Compare(t.Context(), copy.Spec{Src: top, Dst: dst}); !errors.As(err, &mismatch) || mismatch.Offset != size-1 {
		t.Errorf("with another last byte: %v", err)
	}
}

func TestAFoldThatCannotWriteOrFlushFails(t *testing.T) {
	const size = 8 * miB
	overlay := overlayOver(t, raw(t, "base", size), "compat=1.1")
	guestDoes(t, overlay, size, 1)
	dst := raw(t, "dst", size)
	for name, fault := range map[string]func(copy.End) copy.End{
		"write": func(e copy.End) copy.End {
			return &copytest.FailNthWrite{End: e, Nth: copytest.Nth{N: 5, Err: unix.EIO}}
		},
		"zero": func(e copy.End) copy.End { return &copytest.FailZero{End: e, Err: unix.EIO} },
		"flush": func(e copy.End) copy.End {
			return &copytest.FailNthFlush{End: e, Nth: copytest.Nth{N: 1, Err: unix.EIO}}
		},
	} {
		if err := foldInto(t.Context(), overlay, dst, copytest.Wrap("dst", fault)); !errors.Is(err, unix.EIO) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := foldInto(ctx, overlay, dst, copy.OpenFile); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestAnOverlayThatSomebodyHasOrThatIsNoneOfThisSizeIsNotFolded(t *testing.T) {
	const size = 8 * miB
	base := raw(t, "base", size)
	overlay := overlayOver(t, base, "compat=1.1")
	guestDoes(t, overlay, size, 1)
	dst := raw(t, "dst", size)
	hold := exec.CommandContext(t.Context(), "qemu-io", "--image-opts", "driver=qcow2,file.driver=file,file.filename="+overlay) // as a guest does
	stdin, err := hold.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := hold.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := hold.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 1)); err != nil { // its prompt: it has opened the overlay
		t.Fatal(err)
	}
	if err := foldInto(t.Context(), overlay, dst, copy.OpenFile); !errors.Is(err, copy.ErrInUse) {
		t.Errorf("an overlay that is open: %v", err)
	}
	if err := errors.Join(stdin.Close(), hold.Wait()); err != nil {
		t.Fatal(err)
	}
	if err := foldInto(t.Context(), overlay, dst, copy.OpenFile); err != nil {
		t.Fatal(err)
	}
	var wrong *copy.SizeError
	if err := foldInto(t.Context(), overlay, raw(t, "larger", 2*size), copy.OpenFile); !errors.As(err, &wrong) {
		t.Errorf("into a larger image: %v", err)
	}
	dst.SizeBytes = size
	if err := os.Truncate(dst.Path, 2*size); err != nil {
		t.Fatal(err)
	}
	if err := foldInto(t.Context(), overlay, dst, copy.OpenFile); !errors.As(err, &wrong) {
		t.Errorf("into an image that is larger than was said: %v", err)
	}
}
