// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/test/lab"
)

// served lets QEMU serve an image, and returns it as the export.
func served(t *testing.T, image copy.Image) (copy.Image, *lab.Export) {
	t.Helper()
	if _, err := exec.LookPath("qemu-nbd"); err != nil {
		t.Skip("SKIPPED: no qemu-nbd: ", err)
	}
	export, err := lab.Serve(t.Context(), image.Path, "web", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = export.Close() })
	image.Path = export.URI()
	return image, export
}

func TestAnExportIsCopiedToAFileAndReadBack(t *testing.T) {
	const size = 64*miB + 512
	file := raw(t, "src", size, [2]int64{0, 3 * miB}, [2]int64{20*miB + 4096, 70000}, [2]int64{64 * miB, 512})
	src, _ := served(t, file)
	dst := raw(t, "dst", size, [2]int64{30 * miB, miB}) // must be zeros in the end
	result := mustCopy(t, copy.Spec{Src: src, Dst: dst, Verify: true})
	if !result.Verified || result.Cloned || result.BytesCopied > 8*miB || result.BytesTotal != size {
		t.Errorf("result %+v", result)
	}
	if !bytes.Equal(read(t, file), read(t, dst)) {
		t.Error("the copy is something else")
	}
	if err := copy.Compare(t.Context(), copy.Spec{Src: src, Dst: dst}); err != nil {
		t.Errorf("compare: %v", err)
	}
	fill(t, dst, [2]int64{21 * miB, 512})
	var mismatch *copy.MismatchError
	if err := copy.Compare(t.Context(), copy.Spec{Src: src, Dst: dst}); !errors.As(err, &mismatch) || mismatch.Offset != 21*miB {
		t.Errorf("compare with a byte changed: %v", err)
	}
}

func TestACopyOfAnExportWhoseServerDiesGoesOnWhereItStopped(t *testing.T) {
	const size = 512 * miB
	file := raw(t, "src", size, [2]int64{0, 400 * miB})
	src, export := served(t, file)
	dst := raw(t, "dst", size)
	cursor := copy.NewFileCursor(filepath.Join(t.TempDir(), "cursor"))
	defer cursor.Close()
	// The limit leaves most of the copy for after the server's death: an unlimited copy may have
	// read everything before its first report above 100 MiB.
	spec := copy.Spec{Src: src, Dst: dst, Verify: true, DstIsZero: true, Cursor: cursor, Limit: copy.NewLimiter(128 * miB), Progress: func(p copy.Progress) {
		if p.BytesDone > 100*miB {
			_ = export.Close()
		}
	}}
	if _, err := copy.Copy(t.Context(), spec); !errors.Is(err, unix.ENOLINK) {
		t.Fatalf("the copy of an export whose server died: %v", err)
	}
	if err := export.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	spec.Progress, spec.Limit = nil, nil
	result := mustCopy(t, spec)
	if result.BytesResumed == 0 || !result.Verified {
		t.Errorf("result %+v", result)
	}
	if !bytes.Equal(read(t, file), read(t, dst)) {
		t.Error("the copy is something else")
	}
}

func TestACopyOfAnExportEndsWithItsContext(t *testing.T) {
	src, _ := served(t, raw(t, "src", 64*miB, [2]int64{0, 64 * miB}))
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := copy.Copy(ctx, copy.Spec{Src: src, Dst: raw(t, "dst", 64*miB), Limit: copy.NewLimiter(miB), Progress: func(copy.Progress) { cancel(stop) }})
	if err == nil || ctx.Err() == nil {
		t.Errorf("got %v", err)
	}
}

func TestAFileIsCopiedToAnExportAndReadBack(t *testing.T) {
	const size = 64*miB + 512
	src := raw(t, "src", size, [2]int64{0, 3 * miB}, [2]int64{20*miB + 4096, 70000}, [2]int64{64 * miB, 512})
	file := raw(t, "dst", size, [2]int64{30 * miB, 9 * miB}) // must be zeros in the end
	dst, _ := served(t, file)
	if result := mustCopy(t, copy.Spec{Src: src, Dst: dst, Verify: true}); !result.Verified || result.Cloned {
		t.Errorf("result %+v", result)
	}
	if !bytes.Equal(read(t, src), read(t, file)) {
		t.Error("the copy is something else")
	}
}

func TestAnExportIsCopiedToAnother(t *testing.T) {
	from, to := raw(t, "src", 16*miB, [2]int64{miB, 5 * miB}), raw(t, "dst", 16*miB)
	src, _ := served(t, from)
	dst, _ := served(t, to)
	mustCopy(t, copy.Spec{Src: src, Dst: dst, Verify: true})
	if !bytes.Equal(read(t, from), read(t, to)) {
		t.Error("the copy is something else")
	}
	if _, err := copy.Copy(t.Context(), copy.Spec{Src: src, Dst: src}); !errors.Is(err, copy.ErrSameImage) {
		t.Errorf("an export onto itself: %v", err)
	}
}

func TestAnExportOfAnotherSizeIsNoDestination(t *testing.T) {
	src, _ := served(t, raw(t, "src", 4*miB))
	var wrong *copy.SizeError
	for _, ends := range [][2]copy.Image{{src, raw(t, "dst", 8*miB)}, {raw(t, "other", 8*miB), src}} {
		if _, err := copy.Copy(t.Context(), copy.Spec{Src: ends[0], Dst: ends[1]}); !errors.As(err, &wrong) {
			t.Errorf("%s to %s: %v", ends[0].Path, ends[1].Path, err)
		}
	}
}
