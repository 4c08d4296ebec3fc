// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/copy/copytest"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

func TestCopyIsEqualAndSaysWhatItDid(t *testing.T) {
	src := raw(t, "src", 24*miB, [2]int64{0, 3 * miB}, [2]int64{10*miB + 4096, 5 * miB})
	dst := raw(t, "dst", src.SizeBytes)
	var phases []copy.Phase
	result := mustCopy(t, copy.Spec{Src: src, Dst: dst, Verify: true, Progress: func(p copy.Progress) {
		if len(phases) == 0 || phases[len(phases)-1] != p.Phase {
			phases = append(phases, p.Phase)
		}
		if p.BytesDone > p.BytesTotal {
			t.Errorf("progress %+v", p)
		}
	}})
	assertEqual(t, src, dst)
	if result.BytesCopied+result.BytesZero != src.SizeBytes || result.BytesCopied < 8*miB || result.BytesCopied > 9*miB {
		t.Errorf("result %+v", result)
	}
	if !result.Verified || result.Cloned || len(result.Digest) != 32 {
		t.Errorf("result %+v", result)
	}
	want := []copy.Phase{copy.PhaseCopy, copy.PhaseFlush, copy.PhaseVerify}
	if len(phases) != 3 || phases[0] != want[0] || phases[1] != want[1] || phases[2] != want[2] {
		t.Errorf("phases %v, want %v", phases, want)
	}
}

func TestHolesStayHolesAndZerosBecomeHoles(t *testing.T) {
	src := raw(t, "src", 64*miB, [2]int64{32 * miB, miB})
	f, err := os.OpenFile(src.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 8*miB), 0); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	dst := raw(t, "dst", src.SizeBytes)
	mustCopy(t, copy.Spec{Src: src, Dst: dst})
	assertEqual(t, src, dst)
	if n := allocated(t, dst); n > 2*miB {
		t.Errorf("%d bytes allocated for 1 MiB of data", n)
	}
}

func TestAFreshFileTakesNoMoreThanTheScatteredDataOfSrc(t *testing.T) {
	var blocks [][2]int64
	for at := int64(0); at < 4*miB; at += 16 << 10 {
		blocks = append(blocks, [2]int64{at, 4 << 10})
	}
	src, dst := raw(t, "src", 4*miB, blocks...), raw(t, "dst", 4*miB)
	mustCopy(t, copy.Spec{Src: src, Dst: dst, DstIsZero: true, Verify: true})
	assertEqual(t, src, dst)
	const tables = 64 << 10 // the filesystem's tables of extents
	if n, has := allocated(t, dst), allocated(t, src); n > has+tables {
		t.Errorf("%d bytes allocated for %d of src", n, has)
	}
}

func TestOldGarbageInDstDoesNotSurviveASparseSrc(t *testing.T) {
	src := raw(t, "src", 16*miB+512, [2]int64{5*miB + 64<<10, 64 << 10})
	dst := raw(t, "dst", src.SizeBytes, [2]int64{0, 16*miB + 512})
	mustCopy(t, copy.Spec{Src: src, Dst: dst, Verify: true})
	assertEqual(t, src, dst)
	if n := allocated(t, dst); n > miB {
		t.Errorf("%d bytes stay allocated", n)
	}
}

func TestAFreshDstIsNotZeroedAgain(t *testing.T) {
	src, dst := raw(t, "src", 4*miB, [2]int64{miB, miB}), raw(t, "dst", 4*miB)
	mustCopy(t, copy.Spec{
		Src: src, Dst: dst, DstIsZero: true, Verify: true,
		OpenEnd: copytest.Wrap("/dst", func(e copy.End) copy.End {
			return &copytest.FailZero{End: e, Err: errors.New("zeroed")}
		}),
	})
	assertEqual(t, src, dst)
}

func TestATailShorterThanABlockIsCopied(t *testing.T) {
	for _, size := range []int64{512, 4096 + 512, miB - 512, 3*miB + 2560, 2*miB + 4096} {
		src, dst := raw(t, "src", size, [2]int64{0, size}), raw(t, "dst", size)
		mustCopy(t, copy.Spec{Src: src, Dst: dst, Verify: true})
		assertEqual(t, src, dst)
	}
}

func TestSizesAreCheckedBeforeTheFirstWrite(t *testing.T) {
	src := raw(t, "src", 4*miB, [2]int64{0, miB})
	for _, size := range []int64{4*miB - 512, 4*miB + 512} {
		dst := raw(t, "dst", size)
		var wrong *copy.SizeError
		if _, err := copy.Copy(t.Context(), copy.Spec{Src: src, Dst: dst}); !errors.As(err, &wrong) ||
			wrong.Path != dst.Path || wrong.Bytes != size || wrong.WantBytes != 4*miB {
			t.Errorf("error %v", err)
		}
		if n := allocated(t, dst); n != 0 {
			t.Errorf("%d bytes were written", n)
		}
	}
	stated := src
	stated.SizeBytes = 5 * miB
	var wrong *copy.SizeError
	if _, err := copy.Copy(t.Context(), copy.Spec{Src: stated, Dst: raw(t, "dst", 4*miB)}); !errors.As(err, &wrong) || wrong.Path != src.Path {
		t.Errorf("error %v", err)
	}
}

func TestAnImageIsNotCopiedOntoItself(t *testing.T) {
	src := raw(t, "src", miB)
	link := src
	link.Path = filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(src.Path, link.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := copy.Copy(t.Context(), copy.Spec{Src: src, Dst: link, Files: openfile.Anywhere()}); !errors.Is(err, copy.ErrSameImage) {
		t.Errorf("error %v", err)
	}
}

func TestTwoCopiesIntoOneDstAreImpossible(t *testing.T) {
	src, dst := raw(t, "src", 4*miB, [2]int64{0, 4 * miB}), raw(t, "dst", 4*miB)
	waiting, open := make(chan struct{}, 1), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		_, err := copy.Copy(t.Context(), copy.Spec{
			Src: src, Dst: dst,
			OpenEnd: copytest.Wrap("/dst", func(e copy.End) copy.End {
				return &copytest.Gate{End: e, Waiting: waiting, Open: open}
			}),
		})
		first <- err
	}()
	<-waiting
	if _, err := copy.Copy(t.Context(), copy.Spec{Src: src, Dst: dst}); !errors.Is(err, copy.ErrInUse) {
		t.Errorf("second copy: %v", err)
	}
	// A guest cannot open it either.
	if _, err := qemuimg.Serve(t.Context(), qemuimg.Image{Path: dst.Path, Format: "raw"}, qemuimg.ServeOptions{}); !errors.Is(err, qemuimg.ErrLocked) {
		t.Errorf("QEMU opens dst during a copy: %v", err)
	}
	close(open)
	if err := <-first; err != nil {
		t.Errorf("first copy: %v", err)
	}
	mustCopy(t, copy.Spec{Src: src, Dst: dst})
}

func TestCancelStopsTheCopyAndLeavesTheCursor(t *testing.T) {
	src, dst := raw(t, "src", 16*miB, [2]int64{0, 16 * miB}), raw(t, "dst", 16*miB)
	cursor := copy.NewFileCursor(filepath.Join(t.TempDir(), "cursor"))
	defer cursor.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var counter *copytest.Counter
	limit := copy.NewLimiter(1)
	spec := copy.Spec{
		Src: src, Dst: dst, Cursor: cursor, Workers: 2, Limit: limit,
		OpenEnd: copytest.Wrap("/dst", func(e copy.End) copy.End {
			counter = &copytest.Counter{End: e}
			return counter
		}),
		Pace: pacerFunc(func() {
			// After a few chunks the cap would delay the copy for days; cancel it then.
			if counter.Written.Load() >= 5*miB {
				limit.SetBytesPerSecond(1)
				cancel()
			}
		}),
	}
	limit.SetBytesPerSecond(0)
	if _, err := copy.Copy(ctx, spec); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	written := counter.Written.Load()
	if written > 8*miB {
		t.Errorf("%d bytes written after the cancel", written-5*miB)
	}
	limit.SetBytesPerSecond(0)
	spec.Pace = nil
	spec.Verify = true
	result := mustCopy(t, spec)
	if result.BytesResumed != written || counter.Written.Load() != 16*miB-written {
		t.Errorf("resumed %d and wrote %d after %d", result.BytesResumed, counter.Written.Load(), written)
	}
	assertEqual(t, src, dst)
}

func TestARawVolumeThatLooksLikeQcow2IsCopiedAsBytes(t *testing.T) {
	secret := raw(t, "secret", 4*miB, [2]int64{0, 4 * miB})
	evil := filepath.Join(t.TempDir(), "evil")
	err := qemuimg.CreateOverlay(t.Context(), evil, qemuimg.Image{Path: secret.Path, Format: "raw"}, 4*miB, qemuimg.NewFile{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(evil, 4*miB); err != nil {
		t.Fatal(err)
	}
	src := copy.Image{Path: evil, Format: "raw", SizeBytes: 4 * miB}
	dst := raw(t, "dst", 4*miB)
	mustCopy(t, copy.Spec{Src: src, Dst: dst, Verify: true})
	assertEqual(t, src, dst)
}
