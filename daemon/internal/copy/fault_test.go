// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"errors"
	"io"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/copy/copytest"
)

// faulty returns a copy of 8 MiB of data with a fault around one end.
func faulty(t *testing.T, end string, fault func(copy.End) copy.End) copy.Spec {
	t.Helper()
	return copy.Spec{
		Src: raw(t, "src", 8*miB, [2]int64{0, 8 * miB}), Dst: raw(t, "dst", 8*miB),
		Verify: true, OpenEnd: copytest.Wrap(end, fault),
	}
}

func TestReadErrorNamesTheBlock(t *testing.T) {
	const bad = 3*miB + 5*4096 + 77
	spec := faulty(t, "/src", func(e copy.End) copy.End {
		return &copytest.BadSector{End: e, Offset: bad, Err: unix.EIO}
	})
	_, err := copy.Copy(t.Context(), spec)
	var failed *copy.ReadError
	if !errors.As(err, &failed) || failed.Offset != 3*miB+5*4096 || failed.Path != spec.Src.Path || !errors.Is(err, unix.EIO) {
		t.Errorf("error %v", err)
	}
}

func TestAReadErrorThatPassesIsSurvived(t *testing.T) {
	spec := faulty(t, "/src", func(e copy.End) copy.End {
		return &copytest.FailNthRead{End: e, Nth: copytest.Nth{N: 3, Err: unix.EIO}}
	})
	mustCopy(t, spec)
	assertEqual(t, spec.Src, spec.Dst)
}

func TestAShortReadIsAnError(t *testing.T) {
	spec := faulty(t, "/src", func(e copy.End) copy.End {
		return &copytest.ShortRead{End: e, Offset: 6 * miB}
	})
	spec.Workers = 1
	_, err := copy.Copy(t.Context(), spec)
	var failed *copy.ReadError
	if !errors.As(err, &failed) || failed.Offset != 6*miB || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v", err)
	}
}

func TestWriteErrorNamesTheOffsetAndTheReason(t *testing.T) {
	spec := faulty(t, "/dst", func(e copy.End) copy.End {
		return &copytest.FailNthWrite{End: e, Nth: copytest.Nth{N: 4, Err: unix.ENOSPC}}
	})
	spec.Workers = 1
	_, err := copy.Copy(t.Context(), spec)
	var failed *copy.WriteError
	if !errors.As(err, &failed) || failed.Offset != 3*miB || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v", err)
	}
}

func TestAFailureToZeroIsAnErrorBecauseDstMayHoldOldData(t *testing.T) {
	spec := faulty(t, "/dst", func(e copy.End) copy.End { return &copytest.FailZero{End: e, Err: unix.EIO} })
	spec.Src = raw(t, "src", 8*miB, [2]int64{0, miB})
	_, err := copy.Copy(t.Context(), spec)
	var failed *copy.WriteError
	if !errors.As(err, &failed) || failed.Path != spec.Dst.Path {
		t.Errorf("error %v", err)
	}
}

func TestAFailedFlushIsAFailedCopyAndNothingIsRecorded(t *testing.T) {
	spec := faulty(t, "/dst", func(e copy.End) copy.End {
		return &copytest.FailNthFlush{End: e, Nth: copytest.Nth{N: 1, Err: unix.EIO}}
	})
	cursor := copy.NewFileCursor(filepath.Join(t.TempDir(), "cursor"))
	defer cursor.Close()
	spec.Cursor = cursor
	if _, err := copy.Copy(t.Context(), spec); !errors.Is(err, unix.EIO) {
		t.Fatalf("error %v", err)
	}
	spec.OpenEnd = nil
	if result := mustCopy(t, spec); result.BytesResumed != 0 {
		t.Errorf("%d bytes were recorded as done", result.BytesResumed)
	}
}

func TestVerifyFindsAFlippedByte(t *testing.T) {
	const flipped = 5*miB + 12345
	spec := faulty(t, "/dst", func(e copy.End) copy.End { return &copytest.FlipByte{End: e, Offset: flipped} })
	result, err := copy.Copy(t.Context(), spec)
	var mismatch *copy.MismatchError
	if !errors.As(err, &mismatch) || mismatch.Offset != flipped || result.Verified {
		t.Errorf("error %v, result %+v", err, result)
	}
	err = copy.Compare(t.Context(), copy.Spec{Src: spec.Src, Dst: spec.Dst})
	if !errors.As(err, &mismatch) || mismatch.Offset != flipped {
		t.Errorf("Compare: %v", err)
	}
}

func TestCompareReportsTheFirstOfManyDifferences(t *testing.T) {
	src, dst := raw(t, "src", 64*miB, [2]int64{0, 64 * miB}), raw(t, "dst", 64*miB, [2]int64{0, 64 * miB})
	for off := int64(63 * miB); off >= 7*miB; off -= 4 * miB {
		fill(t, dst, [2]int64{off + 24, 8})
	}
	var mismatch *copy.MismatchError
	if err := copy.Compare(t.Context(), copy.Spec{Src: src, Dst: dst}); !errors.As(err, &mismatch) ||
		mismatch.Offset < 7*miB+24 || mismatch.Offset > 7*miB+31 {
		t.Errorf("error %v", err)
	}
}

func TestCompareFindsDataInAHole(t *testing.T) {
	src, dst := raw(t, "src", 64*miB), raw(t, "dst", 64*miB, [2]int64{40*miB + 8, 8})
	var mismatch *copy.MismatchError
	if err := copy.Compare(t.Context(), copy.Spec{Src: src, Dst: dst}); !errors.As(err, &mismatch) || mismatch.Offset != 40*miB+8 {
		t.Errorf("error %v", err)
	}
	if err := copy.Compare(t.Context(), copy.Spec{Src: src, Dst: raw(t, "dst", 64*miB)}); err != nil {
		t.Errorf("two empty images: %v", err)
	}
}
