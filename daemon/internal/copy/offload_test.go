// SPDX-License-Identifier: Apache-2.0

package copy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/copy/copytest"
)

var errStorage = errors.New("the storage has a fault")

// offloadStorage is a storage with src and dst. It executes an unanswered request late: at the next
// other request.
type offloadStorage struct {
	t        *testing.T
	src, dst copy.Image
	asked    [][2]int64
	late     func()
	// at is called for each request, by its number from 1. It returns whether the storage answers,
	// and the error; nil means that the range was copied.
	at func(ask int) (answered bool, err error)
	// clones: it copies everything at once. lies: it copies nothing, but reports success.
	clones, lies bool
}

func newOffloadStorage(t *testing.T, sizeBytes int64) *offloadStorage {
	t.Helper()
	copy.SmallOffloads(t, granule)
	return &offloadStorage{
		t: t, src: raw(t, "src", sizeBytes, [2]int64{0, sizeBytes}), dst: raw(t, "dst", sizeBytes, [2]int64{3, 70_000}),
		at: func(int) (bool, error) { return true, nil },
	}
}

func (s *offloadStorage) move(off, n int64) {
	data := read(s.t, s.src)[off : off+n]
	f, err := os.OpenFile(s.dst.Path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(data, off)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		s.t.Error(err)
	}
}

func (s *offloadStorage) ask(_ context.Context, off, n int64) (int64, bool, error) {
	if s.late != nil {
		s.late()
		s.late = nil
	}
	s.asked = append(s.asked, [2]int64{off, n})
	answered, err := s.at(len(s.asked))
	if !answered {
		s.late = func() { s.move(off, n) }
		return 0, false, errStorage
	}
	if err != nil {
		return 0, true, err
	}
	if s.clones {
		off, n = 0, s.src.SizeBytes
	}
	if !s.lies {
		s.move(off, n)
	}
	return off + n, true, nil
}

// granule is the granularity of the storage.
const granule = 1 * miB

func (s *offloadStorage) spec() copy.Spec {
	return copy.Spec{
		Src: s.src, Dst: s.dst, Verify: true, Offload: &copy.Offload{GranularityBytes: granule, Offered: true, Ask: s.ask},
		OpenEnd: copytest.Wrap("", func(end copy.End) copy.End { return struct{ copy.End }{end} }), // it does not clone
	}
}

// listCursor is a cursor in memory that fails once. The failing append is lost, or kept.
type listCursor struct {
	log    []byte
	n      int
	failAt int
	keeps  bool
}

func (c *listCursor) Load() ([]byte, error) { return slices.Clone(c.log), nil }

func (c *listCursor) Append(record []byte) error {
	c.n++
	failed := c.n == c.failAt
	if !failed || c.keeps {
		c.log = append(c.log, record...)
	}
	if failed {
		return errStorage
	}
	return nil
}

func TestWhatTheStorageCopiesIsCompared(t *testing.T) {
	for _, clones := range []bool{false, true} {
		t.Run(fmt.Sprintf("clones %v", clones), func(t *testing.T) {
			s := newOffloadStorage(t, 3*miB+512) // the last range is not a multiple of a granule
			s.clones = clones
			spec := s.spec()
			spec.Cursor = &listCursor{}
			var phases []copy.Phase
			spec.Progress = func(p copy.Progress) {
				if len(phases) == 0 || phases[len(phases)-1] != p.Phase {
					phases = append(phases, p.Phase)
				}
			}
			res := mustCopy(t, spec)
			assertEqual(t, s.src, s.dst)
			if !res.Offloaded || !res.Verified || res.BytesCopied != 0 {
				t.Errorf("it says %+v", res)
			}
			if !slices.Equal(phases, []copy.Phase{copy.PhaseOffload, copy.PhaseVerify}) {
				t.Errorf("the phases were %v", phases)
			}
			if clones != (len(s.asked) == 1) {
				t.Errorf("it was asked for %v", s.asked)
			}
			mustCopy(t, spec)
			if clones != (len(s.asked) == 1) {
				t.Errorf("what was copied was asked for again: %v", s.asked)
			}
		})
	}
}

// TestAStorageThatDoesNotCopyIsFound by the comparison, and nowhere else.
func TestAStorageThatDoesNotCopyIsFound(t *testing.T) {
	s := newOffloadStorage(t, 8*miB)
	s.lies = true
	res, err := copy.Copy(t.Context(), s.spec())
	if mismatch := (*copy.MismatchError)(nil); !errors.As(err, &mismatch) || res.Verified || !res.Offloaded {
		t.Errorf("got %v and %+v, want a MismatchError", err, res)
	}
	spec := s.spec()
	spec.Verify = false
	if res := mustCopy(t, spec); res.Verified {
		t.Error("nobody has read it")
	}
}

// TestAnOffloadGoesOnFromEachFault: the storage, the cursor and the flush fail at each of their
// calls. No copy succeeds while a range may still be written by the storage.
func TestAnOffloadGoesOnFromEachFault(t *testing.T) {
	const size = 4*miB + 512
	faults := map[string]func(s *offloadStorage, spec *copy.Spec, nth int){
		"the storage says no": func(s *offloadStorage, _ *copy.Spec, nth int) {
			s.at = func(ask int) (bool, error) {
				if ask == nth {
					return true, errStorage
				}
				return true, nil
			}
		},
		"the storage does not answer": func(s *offloadStorage, _ *copy.Spec, nth int) {
			s.at = func(ask int) (bool, error) { return ask != nth, nil }
		},
		"it never answers from then on": func(s *offloadStorage, _ *copy.Spec, nth int) {
			s.at = func(ask int) (bool, error) { return ask < nth || ask > nth+2, nil }
		},
		"a record is lost":         func(_ *offloadStorage, spec *copy.Spec, nth int) { spec.Cursor = &listCursor{failAt: nth} },
		"the answer of the cursor": func(_ *offloadStorage, spec *copy.Spec, nth int) { spec.Cursor = &listCursor{failAt: nth, keeps: true} },
		"a flush": func(_ *offloadStorage, spec *copy.Spec, nth int) {
			spec.OpenEnd = copytest.Wrap("dst", func(end copy.End) copy.End {
				return &copytest.FailNthFlush{End: end, Nth: copytest.Nth{N: int64(nth), Err: syscall.EIO}}
			})
		},
	}
	for name, fault := range faults {
		for nth := 1; nth <= 6; nth++ {
			t.Run(fmt.Sprintf("%s, %d", name, nth), func(t *testing.T) {
				s := newOffloadStorage(t, size)
				spec := s.spec()
				spec.Cursor = &listCursor{}
				fault(s, &spec, nth)
				again := spec
				again.OpenEnd = s.spec().OpenEnd
				res, err := copy.Copy(t.Context(), spec)
				for range 4 {
					open, openErr := copy.Unanswered(spec.Cursor)
					if openErr != nil || err == nil && (open || s.late != nil) {
						t.Fatalf("the copy has ended, and a range is open: %v, %v", open, openErr)
					}
					if s.late != nil && !open {
						t.Fatal("the storage is at work, and the cursor does not say so")
					}
					if errors.Is(err, syscall.EIO) && !open {
						t.Fatal("what was not flushed is noted as copied")
					}
					if err == nil {
						break
					}
					res, err = copy.Copy(t.Context(), again)
				}
				if err != nil || !res.Offloaded {
					t.Fatalf("it ends with %v and %+v", err, res)
				}
				assertEqual(t, s.src, s.dst)
			})
		}
	}
}

func unsupportedFrom(first int) func(int) (bool, error) {
	return func(ask int) (bool, error) {
		if ask >= first {
			return true, errors.ErrUnsupported
		}
		return true, nil
	}
}

// TestWhatTheStorageRefusesIsStreamed as a whole, and the next copy does not ask the storage again.
func TestWhatTheStorageRefusesIsStreamed(t *testing.T) {
	for first := 1; first <= 2; first++ {
		s := newOffloadStorage(t, 4*miB)
		s.at = unsupportedFrom(first)
		spec := s.spec()
		cursor := &listCursor{}
		spec.Cursor = cursor
		var why error
		spec.Offload.Refused = func(err error) { why = err }
		res := mustCopy(t, spec)
		if res.Offloaded || res.BytesCopied != s.src.SizeBytes || !res.Verified || !errors.Is(why, errors.ErrUnsupported) {
			t.Errorf("it says %+v, because of %v", res, why)
		}
		assertEqual(t, s.src, s.dst)
		if res := mustCopy(t, spec); res.BytesResumed != s.src.SizeBytes || len(s.asked) != first {
			t.Errorf("the copy behind it says %+v, and the storage was asked for %v", res, s.asked)
		}
	}
}

// TestASwitchThatIsTurnedOffDoesNotLeaveARangeOpen: the open range is requested once more, and no
// other one.
func TestASwitchThatIsTurnedOffDoesNotLeaveARangeOpen(t *testing.T) {
	s := newOffloadStorage(t, 4*miB)
	s.at = func(ask int) (bool, error) { return ask != 2, nil }
	spec := s.spec()
	spec.Cursor = &listCursor{}
	if _, err := copy.Copy(t.Context(), spec); err == nil {
		t.Fatal("it has ended")
	}
	spec.Offload = nil
	var open *copy.UnansweredError
	if _, err := copy.Copy(t.Context(), spec); !errors.As(err, &open) || open.Offset != s.asked[1][0] || open.Bytes != s.asked[1][1] {
		t.Errorf("with nobody to ask: %v, want an UnansweredError about %v", err, s.asked[1])
	}
	spec.Offload = s.spec().Offload
	spec.Offload.Offered = false
	if res := mustCopy(t, spec); res.Offloaded || len(s.asked) != 3 || s.asked[2] != s.asked[1] {
		t.Errorf("it says %+v, and the storage was asked for %v", res, s.asked)
	}
	assertEqual(t, s.src, s.dst)
}

// TestAnOffloadKeepsTheCap: no range is larger than one second's bytes under the cap, or than a
// part of a granule requires.
func TestAnOffloadKeepsTheCap(t *testing.T) {
	s := newOffloadStorage(t, 14*miB)
	copy.SmallOffloads(t, 256*miB)
	spec := s.spec()
	spec.Offload.GranularityBytes = 4 * miB
	spec.Limit, spec.Verify = copy.NewLimiter(9*miB), false
	mustCopy(t, spec)
	want := [][2]int64{{0, 8 * miB}, {8 * miB, 6 * miB}}
	if !slices.Equal(s.asked, want) {
		t.Errorf("it was asked for %v, want %v", s.asked, want)
	}
}

// TestACopyThatIsStoppedWaitsForTheAnswer, so that no range is open.
func TestACopyThatIsStoppedWaitsForTheAnswer(t *testing.T) {
	s := newOffloadStorage(t, 4*miB)
	ctx, cancel := context.WithCancel(t.Context())
	s.at = func(int) (bool, error) {
		cancel()
		return true, nil
	}
	spec := s.spec()
	spec.Cursor = &listCursor{}
	spec.Offload.Ask = func(ctx context.Context, off, n int64) (int64, bool, error) {
		until, answered, err := s.ask(ctx, off, n)
		if ctx.Err() != nil {
			return 0, false, ctx.Err()
		}
		return until, answered, err
	}
	if _, err := copy.Copy(ctx, spec); !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	if open, err := copy.Unanswered(spec.Cursor); open || err != nil {
		t.Errorf("a range is open: %v, %v", open, err)
	}
	s.at = func(int) (bool, error) { return true, nil }
	mustCopy(t, spec)
	if s.asked[1][0] == 0 {
		t.Errorf("the range was asked for again: %v", s.asked)
	}
}

// TestACopyByChunksStaysOne, even if the storage offers copies by now.
func TestACopyByChunksStaysOne(t *testing.T) {
	s := newOffloadStorage(t, 8*miB)
	spec := s.spec()
	spec.Cursor = &listCursor{}
	offload := spec.Offload
	spec.Offload = nil
	mustCopy(t, spec)
	spec.Offload = offload
	if res := mustCopy(t, spec); res.Offloaded || len(s.asked) > 0 {
		t.Errorf("it says %+v", res)
	}
}

// TestACopyThatBeginsAnewAsksFirstForWhatWasNotAnswered, and then for everything.
func TestACopyThatBeginsAnewAsksFirstForWhatWasNotAnswered(t *testing.T) {
	s := newOffloadStorage(t, 3*miB)
	spec := s.spec()
	spec.Cursor = &listCursor{}
	for _, open := range []bool{true, false} {
		s.asked, s.at = nil, func(ask int) (bool, error) { return !open || ask != 2, nil }
		if _, err := copy.Copy(t.Context(), spec); (err != nil) != open {
			t.Fatalf("it ends with %v", err)
		}
		if needed, err := copy.Restart(spec.Cursor); needed != open || err != nil {
			t.Fatalf("Restart = %v, %v, want %v", needed, err, open)
		}
		if is, err := copy.Unanswered(spec.Cursor); is != open || err != nil {
			t.Fatalf("Unanswered = %v, %v, want %v", is, err, open)
		}
		if open {
			fill(t, s.src, [2]int64{0, 12345}) // as a guest may after a failed cancel
		}
	}
	if want := [][2]int64{{miB, miB}, {0, miB}, {miB, miB}, {2 * miB, miB}}; !slices.Equal(s.asked, want) {
		t.Errorf("it was asked for %v, want %v", s.asked, want)
	}
	assertEqual(t, s.src, s.dst)
}
