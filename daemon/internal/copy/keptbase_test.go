// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

// clone returns a linked clone with these options over a qcow2 image over a shorter raw one. A
// guest with this seed has written into it.
func clone(t *testing.T, options string, sizeBytes int64, seed uint64) copy.Image {
	t.Helper()
	lowest := raw(t, "lowest", sizeBytes/2, [2]int64{0, sizeBytes / 4})
	base := qemuimg.Image{Path: filepath.Join(t.TempDir(), "base"), Format: qemuimg.FormatQCOW2, Backing: &qemuimg.Image{Path: lowest.Path, Format: lowest.Format}}
	create(t, base, "cluster_size=64k", sizeBytes)
	guestDoes(t, base.Path, sizeBytes, seed+100)
	top := qemuimg.Image{Path: filepath.Join(t.TempDir(), "top"), Format: qemuimg.FormatQCOW2, Backing: &base}
	create(t, top, options, sizeBytes)
	guestDoes(t, top.Path, sizeBytes, seed)
	return copy.Image{Path: top.Path, Format: top.Format, Backing: &base, SizeBytes: sizeBytes}
}

func create(t *testing.T, image qemuimg.Image, options string, sizeBytes int64) {
	t.Helper()
	command(t, "qemu-img", "create", "-q", "-u", "-f", "qcow2", "-o", options, "-F", image.Backing.Format, "-b", image.Backing.Path, image.Path, strconv.FormatInt(sizeBytes, 10))
}

// overItsBase returns an empty image over the base images of src.
func overItsBase(t *testing.T, src copy.Image) copy.Image {
	t.Helper()
	dst := qemuimg.Image{Path: filepath.Join(t.TempDir(), "dst"), Format: qemuimg.FormatQCOW2, Backing: src.Backing}
	if err := qemuimg.Create(t.Context(), dst, src.SizeBytes, qemuimg.NewFile{}); err != nil {
		t.Fatal(err)
	}
	return copy.Image{Path: dst.Path, Format: dst.Format, Backing: src.Backing, SizeBytes: src.SizeBytes}
}

// flat returns the content that a guest reads.
func flat(t *testing.T, image copy.Image) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "flat")
	command(t, "qemu-img", "convert", "-f", image.Format, "-O", "raw", image.Path, path)
	return read(t, copy.Image{Path: path, SizeBytes: image.SizeBytes})
}

// bases returns the content of all base images.
func bases(t *testing.T, image copy.Image) (all [][]byte) {
	t.Helper()
	for below := image.Backing; below != nil; below = below.Backing {
		content, err := os.ReadFile(below.Path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, content)
	}
	return all
}

func TestACopyThatKeepsTheBaseImagesHasWhatTheTopHasAndNothingElse(t *testing.T) {
	for options, size := range map[string]int64{
		"cluster_size=64k":                24 * miB,
		"cluster_size=64k,extended_l2=on": 16*miB + 4096,
		"cluster_size=4k":                 9*miB + 12288,
		"cluster_size=2M":                 31 * miB,
		"cluster_size=512,compat=0.10":    5 * miB,
	} {
		seeds := uint64(3)
		if testing.Short() {
			seeds = 1
		}
		for seed := range seeds {
			t.Run(fmt.Sprint(options, " ", seed), func(t *testing.T) {
				t.Parallel()
				src := clone(t, options, size, seed)
				want, before := flat(t, src), bases(t, src)
				dst := overItsBase(t, src)
				result := mustCopy(t, copy.Spec{Src: src, Dst: dst, KeepBase: true, Verify: true})
				if sum := result.BytesCopied + result.BytesZero + result.BytesInherited; sum != size || !result.Verified || result.Digest != "" {
					t.Errorf("%+v is no result of %d bytes", result, size)
				}
				if !bytes.Equal(flat(t, dst), want) {
					t.Error("dst is not equal to src")
				}
				for i, content := range bases(t, src) {
					if !bytes.Equal(content, before[i]) {
						t.Errorf("base image %d was written", i)
					}
				}
				if err := copy.Compare(t.Context(), copy.Spec{Src: src, Dst: dst}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// dst takes only as much space as the top, wherever in a chunk the top's data is.
func TestACopyThatKeepsTheBaseImagesTakesNoMoreThanTheTop(t *testing.T) {
	const size = 64 * miB
	base := raw(t, "base", size, [2]int64{0, size})
	src := copy.Image{Path: filepath.Join(t.TempDir(), "top"), Format: qemuimg.FormatQCOW2, Backing: &qemuimg.Image{Path: base.Path, Format: base.Format}, SizeBytes: size}
	create(t, qemuimg.Image{Path: src.Path, Backing: src.Backing}, "cluster_size=64k", size)
	for off := int64(0); off < size; off += 4 * miB {
		command(t, "qemu-io", "-f", "qcow2", "-c", fmt.Sprintf("write -P 7 %d 64k", off+3*64<<10), "-c", fmt.Sprintf("write -z %d 64k", off+9*64<<10), src.Path)
	}
	dst := overItsBase(t, src)
	result := mustCopy(t, copy.Spec{Src: src, Dst: dst, KeepBase: true, Verify: true})
	if want := int64(16 * 64 << 10); result.BytesCopied != want || result.BytesZero != want {
		t.Errorf("%+v, want %d bytes copied and as many made zero", result, want)
	}
	if of, as := allocated(t, dst), allocated(t, src); of > as+miB {
		t.Errorf("dst takes %d bytes, and the top %d", of, as)
	}
	if !bytes.Equal(flat(t, dst), flat(t, src)) {
		t.Error("dst is not equal to src")
	}
}

func TestACopyThatKeepsTheBaseImagesGoesOnWhereItStopped(t *testing.T) {
	const size = 64 * miB
	src := clone(t, "cluster_size=64k", size, 3)
	command(t, "qemu-io", "-f", "qcow2", "-c", "write -P 9 0 48M", "-c", "write -z 20M 4M", src.Path)
	dst := overItsBase(t, src)
	cursor := copy.NewFileCursor(filepath.Join(t.TempDir(), "cursor"))
	defer cursor.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Chunks that were not recorded within the last second are copied again.
	spec := copy.Spec{Src: src, Dst: dst, KeepBase: true, Verify: true, Cursor: cursor, Limit: copy.NewLimiter(16 * miB)}
	spec.Progress = func(p copy.Progress) {
		if p.BytesDone > size*2/3 {
			cancel()
		}
	}
	if _, err := copy.Copy(ctx, spec); !errors.Is(err, context.Canceled) {
		t.Fatalf("a copy that was cancelled ends with %v", err)
	}
	spec.Progress, spec.Limit = nil, nil
	if result := mustCopy(t, spec); result.BytesResumed == 0 {
		t.Errorf("%+v: nothing was resumed", result)
	}
	if !bytes.Equal(flat(t, dst), flat(t, src)) {
		t.Error("dst is not equal to src")
	}
}

// Data of dst where src has none would hide the base images.
func TestADestinationThatHidesTheBaseImagesIsFound(t *testing.T) {
	const size = 16 * miB
	base := raw(t, "base", size, [2]int64{0, size})
	src := copy.Image{Path: filepath.Join(t.TempDir(), "top"), Format: qemuimg.FormatQCOW2, Backing: &qemuimg.Image{Path: base.Path, Format: base.Format}, SizeBytes: size}
	create(t, qemuimg.Image{Path: src.Path, Backing: src.Backing}, "cluster_size=64k", size)
	dst := overItsBase(t, src)
	const off = 5*miB + 128<<10
	command(t, "qemu-io", "-f", "qcow2", "-c", fmt.Sprintf("write -P 1 %d 64k", off), dst.Path)
	_, err := copy.Copy(t.Context(), copy.Spec{Src: src, Dst: dst, KeepBase: true, Verify: true})
	if mismatch := (*copy.MismatchError)(nil); !errors.As(err, &mismatch) || mismatch.Offset != off {
		t.Errorf("ends with %v, want the difference at %d", err, off)
	}
}

func TestOnlyImagesOverTheSameBaseImagesAreCopiedWithoutThem(t *testing.T) {
	const size = 4 * miB
	src := clone(t, "cluster_size=64k", size, 1)
	other := clone(t, "cluster_size=64k", size, 2)
	for name, dst := range map[string]copy.Image{"alone": qcow2(t, "alone", size), "over others": overItsBase(t, other)} {
		if _, err := copy.Copy(t.Context(), copy.Spec{Src: src, Dst: dst, KeepBase: true}); err == nil {
			t.Errorf("a dst that is %s is copied to", name)
		}
	}
}
