// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/copy/copytest"
)

const unitBytes = 64 << 10

// unitsOf returns the range of n units from first on.
func unitsOf(first, n int64) copy.Range {
	return copy.Range{Offset: first * unitBytes, Bytes: n * unitBytes}
}

// liveCopy returns a copy of these ranges of 8 MiB of data to a dst with other data.
func liveCopy(t *testing.T, ranges ...copy.Range) copy.UnitsSpec {
	t.Helper()
	src, dst := raw(t, "src", 8*miB, [2]int64{0, 8 * miB}), raw(t, "dst", 8*miB)
	for off := int64(0); off < 8*miB; off += miB {
		fill(t, dst, [2]int64{off, miB})
	}
	return copy.UnitsSpec{Spec: copy.Spec{Src: src, Dst: dst, Verify: true}, UnitBytes: unitBytes, Ranges: ranges}
}

func mustCopyUnits(t *testing.T, spec copy.UnitsSpec) copy.UnitsResult {
	t.Helper()
	result, err := copy.Units(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// wantUnits compares dst with src in the ranges, and with its previous content elsewhere.
func wantUnits(t *testing.T, spec copy.UnitsSpec, before []byte, ranges ...copy.Range) {
	t.Helper()
	want, src := bytes.Clone(before), read(t, spec.Src)
	for _, r := range ranges {
		want = slices.Concat(want[:r.Offset], src[r.Offset:r.Offset+r.Bytes], want[r.Offset+r.Bytes:])
	}
	if got := read(t, spec.Dst); !bytes.Equal(want, got) {
		i := 0
		for want[i] == got[i] {
			i++
		}
		t.Errorf("dst differs from byte %d on, in unit %d", i, i/unitBytes)
	}
}

func TestUnitsAreCopiedAndNothingElseIsTouched(t *testing.T) {
	ranges := []copy.Range{unitsOf(0, 1), unitsOf(3, 2), unitsOf(40, 30), unitsOf(127, 1)}
	spec := liveCopy(t, ranges...)
	before := read(t, spec.Dst)
	spec.Again = []copy.Differing{{Range: unitsOf(4, 1), Times: 1}, {Range: unitsOf(9, 1), Times: 1}}
	result := mustCopyUnits(t, spec)
	wantUnits(t, spec, before, append(ranges, unitsOf(9, 1))...)
	if diff := cmp.Diff(copy.UnitsResult{CopiedBytes: 35 * unitBytes}, result); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func TestUnitsThatAreZerosNowAreZerosInDst(t *testing.T) {
	spec := liveCopy(t, unitsOf(0, 128))
	spec.Src = raw(t, "src", 8*miB, [2]int64{miB, unitBytes}, [2]int64{3 * miB, 4096})
	mustCopyUnits(t, spec)
	assertEqual(t, spec.Src, spec.Dst)
}

func TestTheLastUnitMayBeShort(t *testing.T) {
	const size = 2*miB + 3*4096
	spec := liveCopy(t)
	spec.Src, spec.Dst = raw(t, "src", size, [2]int64{0, size}), raw(t, "dst", size)
	spec.Ranges = []copy.Range{{Offset: 0, Bytes: size}}
	mustCopyUnits(t, spec)
	assertEqual(t, spec.Src, spec.Dst)
}

func TestWhatIsNoWholeUnitIsRefused(t *testing.T) {
	for name, edit := range map[string]func(*copy.UnitsSpec){
		"offset":        func(s *copy.UnitsSpec) { s.Ranges = []copy.Range{{Offset: 4096, Bytes: unitBytes}} },
		"length":        func(s *copy.UnitsSpec) { s.Ranges = []copy.Range{{Offset: 0, Bytes: 4096}} },
		"beyond":        func(s *copy.UnitsSpec) { s.Ranges = []copy.Range{unitsOf(120, 9)} },
		"negative":      func(s *copy.UnitsSpec) { s.Ranges = []copy.Range{unitsOf(-1, 2)} },
		"unit":          func(s *copy.UnitsSpec) { s.UnitBytes = 3 * 4096 },
		"no unit":       func(s *copy.UnitsSpec) { s.UnitBytes = 0 },
		"again":         func(s *copy.UnitsSpec) { s.Again = []copy.Differing{{Range: copy.Range{Offset: 1, Bytes: 1}}} },
		"format":        func(s *copy.UnitsSpec) { s.Dst = raw(t, "q", 8*miB); s.Dst.Format = "qcow2" },
		"another size":  func(s *copy.UnitsSpec) { s.Dst = raw(t, "larger", 9*miB) },
		"the same file": func(s *copy.UnitsSpec) { s.Dst = s.Src },
		"uneven size": func(s *copy.UnitsSpec) {
			s.Src, s.Dst = raw(t, "a", miB+512), raw(t, "b", miB+512)
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := liveCopy(t, unitsOf(0, 1))
			before := read(t, spec.Dst)
			edit(&spec)
			if _, err := copy.Units(t.Context(), spec); err == nil {
				t.Error("no error")
			}
			if got := read(t, spec.Dst); len(got) == len(before) && name != "the same file" && name != "format" && name != "uneven size" && !bytes.Equal(got, before) {
				t.Error("dst was written")
			}
		})
	}
}

// otherWriter writes units of dst as another host does, right after a flush of this copy and before
// it reads back.
type otherWriter struct {
	copy.End

	write func(copy.End) error
	once  *sync.Once
}

func (e *otherWriter) Flush() error {
	err := e.End.Flush()
	e.once.Do(func() { err = errors.Join(err, e.write(e.End), e.End.Flush()) })
	return err
}

// withOther lets another host write one unit of dst during the copy.
func withOther(spec copy.UnitsSpec, unit int64) copy.UnitsSpec {
	once := &sync.Once{}
	spec.OpenEnd = copytest.Wrap("/dst", func(e copy.End) copy.End {
		return &otherWriter{End: e, once: once, write: func(dst copy.End) error {
			_, err := dst.WriteAt(bytes.Repeat([]byte{7}, unitBytes), unit*unitBytes)
			return err
		}}
	})
	return spec
}

func TestAUnitThatAnotherHostWroteIsCopiedAgainInTheNextRound(t *testing.T) {
	spec := liveCopy(t, unitsOf(0, 8))
	result := mustCopyUnits(t, withOther(spec, 5))
	want := []copy.Differing{{Range: unitsOf(5, 1), Times: 1}}
	if diff := cmp.Diff(want, result.Differing); diff != "" {
		t.Errorf("differing (-want +got):\n%s", diff)
	}
	spec.Ranges, spec.Again = []copy.Range{unitsOf(20, 1)}, result.Differing
	before := read(t, spec.Dst)
	if result := mustCopyUnits(t, spec); len(result.Differing) != 0 {
		t.Errorf("%v differ still", result.Differing)
	}
	wantUnits(t, spec, before, unitsOf(5, 1), unitsOf(20, 1))
}

func TestAUnitThatDiffersThreeTimesIsAMismatch(t *testing.T) {
	spec := liveCopy(t)
	for times := range 2 {
		spec.Ranges = []copy.Range{unitsOf(5, 1)}
		result := mustCopyUnits(t, withOther(spec, 5))
		if len(result.Differing) != 1 || result.Differing[0].Times != times+1 {
			t.Fatalf("after %d copies: %+v", times+1, result.Differing)
		}
		spec.Again = result.Differing
	}
	var mismatch *copy.MismatchError
	if _, err := copy.Units(t.Context(), withOther(spec, 5)); !errors.As(err, &mismatch) || mismatch.Offset != 5*unitBytes {
		t.Errorf("error %v", err)
	}
}

func TestNothingMayDifferWhenNobodyWritesSrc(t *testing.T) {
	spec := liveCopy(t, unitsOf(0, 8))
	spec.Still = true
	var mismatch *copy.MismatchError
	if _, err := copy.Units(t.Context(), withOther(spec, 3)); !errors.As(err, &mismatch) || mismatch.Offset != 3*unitBytes {
		t.Errorf("error %v", err)
	}
	mustCopyUnits(t, spec)
}

func TestAFlippedByteOfAUnitIsFound(t *testing.T) {
	spec := liveCopy(t, unitsOf(0, 128))
	spec.OpenEnd = copytest.Wrap("/dst", func(e copy.End) copy.End { return &copytest.FlipByte{End: e, Offset: 5*miB + 12345} })
	result := mustCopyUnits(t, spec)
	if len(result.Differing) != 1 || result.Differing[0].Range != unitsOf((5*miB+12345)/unitBytes, 1) {
		t.Errorf("differing: %+v", result.Differing)
	}
	spec.Verify = false
	if result := mustCopyUnits(t, spec); len(result.Differing) != 0 {
		t.Errorf("without verification: %+v", result.Differing)
	}
}

func TestFaultyEndsOfUnitsAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		end   string
		fault func(copy.End) copy.End
		want  error
	}{
		"read of src": {"/src", func(e copy.End) copy.End {
			return &copytest.BadSector{End: e, Offset: 3 * miB, Err: unix.EIO}
		}, unix.EIO},
		"write": {"/dst", func(e copy.End) copy.End {
			return &copytest.FailNthWrite{End: e, Nth: copytest.Nth{N: 3, Err: unix.ENOSPC}}
		}, unix.ENOSPC},
		"flush": {"/dst", func(e copy.End) copy.End {
			return &copytest.FailNthFlush{End: e, Nth: copytest.Nth{N: 1, Err: unix.EIO}}
		}, unix.EIO},
		"read back": {"/dst", func(e copy.End) copy.End {
			return &copytest.BadSector{End: e, Offset: 3 * miB, Err: unix.EIO}
		}, unix.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			spec := liveCopy(t, unitsOf(0, 128))
			spec.Cursor = copy.NewFileCursor(filepath.Join(t.TempDir(), "cursor"))
			spec.OpenEnd = copytest.Wrap(c.end, c.fault)
			if _, err := copy.Units(t.Context(), spec); !errors.Is(err, c.want) {
				t.Fatalf("error %v", err)
			}
			spec.OpenEnd = nil // the cursor has no wrong record
			mustCopyUnits(t, spec)
			assertEqual(t, spec.Src, spec.Dst)
		})
	}
}

func TestTwoHostsCopyTheSameUnitsAtOnce(t *testing.T) {
	spec := liveCopy(t, unitsOf(0, 128))
	var hosts sync.WaitGroup
	for range 2 {
		hosts.Go(func() {
			if _, err := copy.Units(t.Context(), spec); err != nil {
				t.Error(err)
			}
		})
	}
	hosts.Wait()
	assertEqual(t, spec.Src, spec.Dst)
}

func TestACopyOfUnitsAndAWholeCopyKeepEachOtherOff(t *testing.T) {
	spec := liveCopy(t, unitsOf(0, 1))
	waiting, open := make(chan struct{}, 1), make(chan struct{})
	spec.OpenEnd = copytest.Wrap("/dst", func(e copy.End) copy.End { return &copytest.Gate{End: e, Waiting: waiting, Open: open} })
	done := make(chan error, 1)
	go func() {
		_, err := copy.Units(context.WithoutCancel(t.Context()), spec)
		done <- err
	}()
	<-waiting
	if _, err := copy.Copy(t.Context(), copy.Spec{Src: spec.Src, Dst: spec.Dst}); !errors.Is(err, copy.ErrInUse) {
		t.Errorf("a whole copy beside it: %v, want ErrInUse", err)
	}
	close(open)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// killed ends a copy at its nth write to dst, as the death of the process does.
type killed struct {
	copy.End

	writes int
	kill   context.CancelCauseFunc
	mu     sync.Mutex
}

var errKilled = errors.New("killed")

func (e *killed) WriteAt(p []byte, off int64) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.writes--; e.writes < 0 {
		e.kill(errKilled)
		return 0, errKilled
	}
	return e.End.WriteAt(p, off)
}

// A copy of several windows is interrupted again and again: recorded windows are stored, and are
// not copied again.
func TestACopyOfUnitsGoesOnFromItsCursor(t *testing.T) {
	const size = 300 * miB
	src, dst := raw(t, "src", size), raw(t, "dst", size)
	for off := int64(0); off < size; off += 25 * miB {
		fill(t, src, [2]int64{off, miB})
	}
	path := filepath.Join(t.TempDir(), "cursor")
	spec := copy.UnitsSpec{
		Spec:      copy.Spec{Src: src, Dst: dst, Verify: true, Workers: 1},
		UnitBytes: unitBytes, Ranges: []copy.Range{{Offset: 0, Bytes: size}},
	}
	random := rand.New(rand.NewPCG(1, 2))
	cut, recorded := 0, int64(0)
	for done := false; !done; {
		cursor := copy.NewFileCursor(path)
		spec.Cursor = cursor
		ctx, kill := context.WithCancelCause(t.Context())
		spec.OpenEnd = copytest.Wrap("/dst", func(e copy.End) copy.End {
			return &killed{End: e, writes: 1 + random.IntN(9), kill: kill}
		})
		result, err := copy.Units(ctx, spec)
		kill(nil)
		must(t, cursor.Close())
		switch {
		case err == nil:
			done = true
			if result.CopiedBytes != size {
				t.Errorf("copied %d bytes, want %d", result.CopiedBytes, size)
			}
		case errors.Is(err, errKilled):
			cut++
			if result.CopiedBytes < recorded {
				t.Errorf("the cursor went back from %d to %d bytes", recorded, result.CopiedBytes)
			}
			recorded = result.CopiedBytes
		default:
			t.Fatal(err)
		}
	}
	if cut == 0 || recorded == 0 {
		t.Errorf("cut off %d times, and %d bytes were recorded then: the test shows nothing", cut, recorded)
	}
	assertEqual(t, src, dst)
}

func TestACursorOfOtherRangesIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cursor")
	spec := liveCopy(t, unitsOf(0, 4))
	spec.Cursor = copy.NewFileCursor(path)
	mustCopyUnits(t, spec)
	spec.Ranges, spec.Cursor = []copy.Range{unitsOf(0, 5)}, copy.NewFileCursor(path)
	if _, err := copy.Units(t.Context(), spec); err == nil {
		t.Error("what was copied of other ranges was taken for this copy's")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
