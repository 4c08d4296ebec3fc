// SPDX-License-Identifier: Apache-2.0

package plans_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/copy"
	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/led"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// The names of the bitmaps of generation 1.
const (
	bitmaps    = "volferry-" + testMigration + "-g000001-"
	roundZero  = bitmaps + "r000000"
	roundOne   = bitmaps + "r000001"
	lastBitmap = bitmaps + "last"
	cursors    = "live-" + testMigration + "-g000001-"
)

// livePhase is a world before an op of one kind, in a move while all guests write.
type livePhase struct {
	*migratetest.World
	in      move.LiveInput
	history move.LiveHistory
	// done and undone check the world after the op.
	done, undone func(*livePhase) error
}

// Plans implements optest.World.
func (p *livePhase) Plans() []op.Plan {
	host := func(context.Context) (move.Host, error) { return move.Host{ID: testHost, Epoch: 1}, nil }
	return plans.NewEnv(p.Ports(), migratetest.FakeHistory{LiveState: p.history}, host, func(string) {}, slog.New(slog.DiscardHandler)).Plans()
}

// Op implements optest.World.
func (p *livePhase) Op() op.Op {
	in, err := json.Marshal(p.in)
	if err != nil {
		panic(err)
	}
	return op.Op{
		ID: "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0bbb", Kind: p.in.Kind, Group: p.in.Group(), Keys: p.in.Keys(), Input: in, CreatedAt: time.Unix(1, 0),
	}
}

// Check implements optest.World.
func (p *livePhase) Check(state op.State) error {
	p.SetQuiet()
	if state == op.StateDone {
		return p.done(p)
	}
	if p.undone == nil {
		return nil
	}
	return p.undone(p)
}

// live is a world with a tracked guest that has written since.
func live(t *testing.T, kind string, state hv.State, row api.MigrationState) *livePhase {
	t.Helper()
	w := migratetest.NewWorld(t, state)
	ctx := context.Background()
	spec := testSpec(move.MethodSave)
	_, err := w.CreateVolume(ctx, "new", spec.Dst.Name, "raw", testSize, nil)
	must(t, err)
	must(t, w.Images.Mark(ctx, dstPath, led.LiveMark(testMigration)))
	w.Registry.LiveRow(row)
	p := &livePhase{World: w, in: move.LiveInput{
		LiveVolume: api.LiveVolume{
			MigrationID: testMigration, VolumeID: spec.VolumeID, VolumeName: "vol", Instances: []string{testInstance},
			Src: spec.Src, Dst: spec.Dst, UnitBytes: hvtest.BlockSize,
		},
		Kind: kind, Generation: 1, Guests: []move.LiveGuest{{ID: testInstance, Name: "web", Target: "vda"}},
	}}
	return p
}

// tracked tracks the guest of a world, and copies the whole volume.
func (p *livePhase) tracked(t *testing.T) *livePhase {
	t.Helper()
	ctx := context.Background()
	process, err := p.Process(ctx, testInstance, "vda")
	must(t, err)
	must(t, p.StartTracking(ctx, testInstance, "vda", roundZero, hvtest.BlockSize))
	must(t, p.CopyBlocks(srcPath, dstPath, 0, testBlocks))
	fingerprint, err := p.Images.Fingerprint(ctx, dstPath)
	must(t, err)
	p.history = move.LiveHistory{DstPrint: fingerprint, Tracked: []move.TrackedGuest{{ID: testInstance, Process: process.ID}}, Copied: true}
	for range 5 {
		p.GuestWrites()
	}
	return p
}

// swapped is tracked with a swap after it.
func (p *livePhase) swapped(t *testing.T) *livePhase {
	t.Helper()
	p.tracked(t)
	must(t, p.SwapTracking(context.Background(), testInstance, "vda", roundZero, roundOne, hvtest.BlockSize))
	for range 5 {
		p.GuestWrites()
	}
	p.in.Round, p.history.Round, p.history.Copied, p.history.CopiedBefore = 1, 1, false, true
	return p
}

func (p *livePhase) names() (map[string]bool, error) {
	all, err := p.Fake.Tracking(context.Background(), testInstance, "vda")
	names := map[string]bool{}
	for _, b := range all {
		names[b.Name] = b.Recording
	}
	if errors.Is(err, hv.ErrNotActive) {
		err = nil
	}
	return names, err
}

func (p *livePhase) wantNames(want map[string]bool) error {
	got, err := p.names()
	if err == nil && fmt.Sprint(got) != fmt.Sprint(want) {
		err = fmt.Errorf("the bitmaps are %v, want %v", got, want)
	}
	return err
}

// inStep checks dst: a block that differs from src must be in a bitmap, or in the units that are
// kept for copying.
func (p *livePhase) inStep() error {
	ctx := context.Background()
	src, err := p.ReadImage(srcPath)
	if err != nil {
		return err
	}
	dst, err := p.ReadImage(dstPath)
	if err != nil {
		return err
	}
	known := map[int64]bool{}
	add := func(off, n int64) {
		for b := off / hvtest.BlockSize; b < (off+n)/hvtest.BlockSize; b++ {
			known[b] = true
		}
	}
	names, err := p.names()
	if err != nil {
		return err
	}
	for name, records := range names {
		if records { // only stopped bitmaps are read
			if err := p.Fake.SwapTracking(ctx, testInstance, "vda", name, name+"-check", hvtest.BlockSize); err != nil {
				return err
			}
		}
		dirty, err := p.Fake.DirtyUnits(ctx, testInstance, "vda", name)
		if err != nil {
			return err
		}
		for _, d := range dirty {
			add(d.Offset, d.Bytes)
		}
	}
	p.Copier.Mu.Lock()
	defer p.Copier.Mu.Unlock()
	for _, kept := range p.Copier.Kept {
		for _, r := range kept.Ranges {
			add(r.Offset, r.Bytes)
		}
	}
	for b := range int64(testBlocks) {
		if src[b] != dst[b] && !known[b] {
			return fmt.Errorf("block %d is %d in src and %d in dst, and nobody knows", b, src[b], dst[b])
		}
	}
	return nil
}

// nothingLeft checks that no bitmap, guard or kept unit remains.
func (p *livePhase) nothingLeft() error {
	r := &hosttest.Recorder{}
	if err := p.wantNames(map[string]bool{}); err != nil {
		r.Errorf("%v", err)
	}
	if g := p.Guards.Guarded(); len(g) > 0 {
		r.Errorf("guards are left: %v", g)
	}
	p.Copier.Mu.Lock()
	defer p.Copier.Mu.Unlock()
	if len(p.Copier.Kept) > 0 {
		r.Errorf("kept: %v", p.Copier.Kept)
	}
	return errors.Join(r.Problems...)
}

func matrix(t *testing.T, make func(t *testing.T) *livePhase) {
	t.Helper()
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World { return make(t) }})
}

func TestMatrixOfTracking(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StatePaused, hv.StateStopped} {
		t.Run(string(state), func(t *testing.T) {
			matrix(t, func(t *testing.T) *livePhase {
				p := live(t, move.KindLiveTrack, state, api.MigrationCopying)
				p.done = func(p *livePhase) error {
					if !state.Active() {
						if len(p.Guards.Guarded()) != 1 {
							return errors.New("a guest that is off is not guarded")
						}
						return nil
					}
					if g := p.Guards.Guarded(); len(g) > 0 {
						return fmt.Errorf("guards are left: %v", g)
					}
					return p.wantNames(map[string]bool{roundZero: true})
				}
				p.undone = (*livePhase).nothingLeft
				return p
			})
		})
	}
}

func TestMatrixOfTheMakingOfADestination(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		w := migratetest.NewWorld(t, hv.StateRunning)
		w.Registry.LiveRow(api.MigrationStarting)
		spec := savedSpec()
		spec.Method = move.MethodLive
		return &phase{
			World: w, kind: move.KindMakeLive, spec: spec,
			done: func(p *phase) error {
				is, err := p.Images.Marked(context.Background(), dstPath, led.LiveMark(testMigration))
				if err == nil && !is {
					err = errors.New("dst is not marked")
				}
				return err
			},
			undone: func(p *phase) error { return p.NothingMade() },
		}
	}})
}

func TestMatrixOfADroppedDestination(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		w := migratetest.NewWorld(t, hv.StateRunning)
		spec := savedSpec()
		spec.Method = move.MethodLive
		_, err := w.CreateVolume(context.Background(), "new", spec.Dst.Name, "raw", testSize, nil)
		must(t, err)
		w.Registry.LiveRow(api.MigrationCancelling)
		return &phase{
			World: w, kind: move.KindDropDst, spec: spec,
			done:   func(p *phase) error { return p.NothingMade() },
			undone: func(*phase) error { return nil },
		}
	}})
}

// A host with another file at the path of dst would copy its share into that.
func TestAHostThatHasAnotherImageAtTheDestinationIsFoundBeforeItsGuestsAreFollowed(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*testing.T, *livePhase)
		want api.Code
	}{
		"another file": {func(t *testing.T, p *livePhase) { must(t, p.Images.Mark(t.Context(), dstPath, "somebody's")) }, api.CodeChainChanged},
		"nothing":      {func(t *testing.T, p *livePhase) { must(t, p.Fake.Remove(dstPath)) }, api.CodeNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			p := live(t, move.KindLiveTrack, hv.StateRunning, api.MigrationCopying)
			tc.edit(t, p)
			if st := p.run(t); st.State != op.StateUndone || st.Failure == nil || st.Failure.Code != string(tc.want) {
				t.Errorf("the op is %s: %+v, want undone because of %s", st.State, st.Failure, tc.want)
			}
			must(t, p.nothingLeft())
		})
	}
}

// An image that was put at the path of dst during a move is not written, and does not count as the
// copy.
func TestARoundIntoAnotherImageThanTheFirstIsRefused(t *testing.T) {
	p := live(t, move.KindLiveRound, hv.StateRunning, api.MigrationCopying).swapped(t)
	must(t, p.Fake.Remove(dstPath))
	_, err := p.CreateVolume(t.Context(), "new", p.in.Dst.Name, "raw", testSize, nil)
	must(t, err)
	p.history.DstPrint = "another"
	if st := p.run(t); st.State != op.StateUndone || st.Failure == nil || st.Failure.Code != string(api.CodeDstInUse) {
		t.Errorf("the op is %s: %+v, want undone because of %s", st.State, st.Failure, api.CodeDstInUse)
	}
}

func TestMatrixOfASwap(t *testing.T) {
	matrix(t, func(t *testing.T) *livePhase {
		p := live(t, move.KindLiveSwap, hv.StateRunning, api.MigrationCopying).tracked(t)
		p.in.Round = 1
		p.done = func(p *livePhase) error {
			return errors.Join(p.wantNames(map[string]bool{roundZero: false, roundOne: true}), p.inStep())
		}
		p.undone = (*livePhase).inStep
		return p
	})
}

func TestMatrixOfTheFirstRound(t *testing.T) {
	matrix(t, func(t *testing.T) *livePhase {
		p := live(t, move.KindLiveRound, hv.StateRunning, api.MigrationCopying).tracked(t)
		must(t, p.Fake.Remove(dstPath))
		_, err := p.CreateVolume(context.Background(), "new", p.in.Dst.Name, "raw", testSize, nil)
		must(t, err)
		p.history.DstPrint, err = p.Images.Fingerprint(context.Background(), dstPath)
		must(t, err)
		p.in.UntilBytes, p.history.Copied = testSize, false
		p.done = func(p *livePhase) error {
			return errors.Join(p.wantNames(map[string]bool{roundZero: true}), p.inStep())
		}
		p.undone = func(p *livePhase) error { return p.wantNames(map[string]bool{roundZero: true}) }
		return p
	})
}

func TestMatrixOfALaterRound(t *testing.T) {
	matrix(t, func(t *testing.T) *livePhase {
		p := live(t, move.KindLiveRound, hv.StateRunning, api.MigrationCopying).swapped(t)
		p.done = func(p *livePhase) error {
			return errors.Join(p.wantNames(map[string]bool{roundOne: true}), p.inStep())
		}
		p.undone = func(p *livePhase) error {
			return errors.Join(p.wantNames(map[string]bool{roundZero: false, roundOne: true}), p.inStep())
		}
		return p
	})
}

// heldBack is a guest that an earlier round has limited, and that had a limit of its owner.
func (p *livePhase) heldBack(t *testing.T) *livePhase {
	t.Helper()
	must(t, p.PutWriteLimit(context.Background(), testInstance, "vda", ourLimit))
	p.history.Throttles = []int64{4 * ourLimit, ourLimit}
	p.history.Before = map[string]move.TrackedGuest{testInstance: {ID: testInstance, Process: p.history.Tracked[0].Process, Limit: ownersLimit}}
	return p
}

const ourLimit, ownersLimit = 1 << 20, 5 << 20

// limited checks the limit on the guest's writes, and removes it before the other checks.
func (p *livePhase) limited(want int64) error {
	got := p.WriteLimit(testInstance, "vda")
	err := p.PutWriteLimit(context.Background(), testInstance, "vda", 0)
	if got != want {
		err = errors.Join(err, fmt.Errorf("the limit on writes is %d, want %d", got, want))
	}
	return err
}

func TestMatrixOfARoundThatHoldsItsGuestsBack(t *testing.T) {
	matrix(t, func(t *testing.T) *livePhase {
		p := live(t, move.KindLiveRound, hv.StateRunning, api.MigrationCopying).swapped(t)
		p.in.WriteBytesPerSecond = ourLimit
		p.done = func(p *livePhase) error { return errors.Join(p.limited(ourLimit), p.inStep()) }
		p.undone = func(p *livePhase) error { // the end of the generation removes it
			return errors.Join(p.PutWriteLimit(context.Background(), testInstance, "vda", 0), p.inStep())
		}
		return p
	})
}

func TestMatrixOfTheEndOfThoseThatWereHeldBack(t *testing.T) {
	for kind, row := range map[string]api.MigrationState{
		move.KindLiveEnd: api.MigrationCopying, move.KindLiveUntrack: api.MigrationCancelling, move.KindLiveLastRead: api.MigrationCompleting,
	} {
		t.Run(kind, func(t *testing.T) {
			matrix(t, func(t *testing.T) *livePhase {
				p := live(t, kind, hv.StateRunning, row).tracked(t).heldBack(t)
				if kind == move.KindLiveLastRead {
					must(t, p.Suspend(context.Background(), testInstance))
				}
				p.done = func(p *livePhase) error { return p.limited(ownersLimit) }
				p.undone = func(p *livePhase) error { return p.PutWriteLimit(context.Background(), testInstance, "vda", 0) }
				return p
			})
		})
	}
}

// suspendedLive is a world with a paused guest, and a copy of everything but its writes since the
// last swap.
func suspendedLive(t *testing.T, kind string) *livePhase {
	t.Helper()
	p := live(t, kind, hv.StateRunning, api.MigrationCompleting).tracked(t)
	must(t, p.Suspend(context.Background(), testInstance))
	return p
}

func TestMatrixOfTheLastRead(t *testing.T) {
	matrix(t, func(t *testing.T) *livePhase {
		p := suspendedLive(t, move.KindLiveLastRead)
		p.done = func(p *livePhase) error {
			return errors.Join(p.wantNames(map[string]bool{roundZero: false, lastBitmap: true}), p.onlyKept())
		}
		p.undone = (*livePhase).inStep
		return p
	})
}

// onlyKept checks that the kept units suffice to make dst equal to src.
func (p *livePhase) onlyKept() error {
	p.Copier.Mu.Lock()
	kept, ok := p.Copier.Kept[cursors+"last-kept"]
	p.Copier.Mu.Unlock()
	if !ok {
		return errors.New("nothing is kept")
	}
	for _, r := range kept.Ranges {
		if err := p.CopyBlocks(srcPath, dstPath, r.Offset/hvtest.BlockSize, r.Bytes/hvtest.BlockSize); err != nil {
			return err
		}
	}
	return p.same()
}

func (p *livePhase) same() error {
	src, err := p.ReadImage(srcPath)
	if err != nil {
		return err
	}
	dst, err := p.ReadImage(dstPath)
	if err == nil && fmt.Sprint(src) != fmt.Sprint(dst) {
		err = errors.New("dst is not equal to src")
	}
	return err
}

func TestMatrixOfTheLastCopy(t *testing.T) {
	for _, saved := range []bool{false, true} {
		t.Run(fmt.Sprintf("saved %v", saved), func(t *testing.T) {
			matrix(t, func(t *testing.T) *livePhase {
				p := suspendedLive(t, move.KindLiveLast)
				ctx := context.Background()
				must(t, p.SwapTracking(ctx, testInstance, "vda", roundZero, lastBitmap, hvtest.BlockSize))
				dirty, err := p.DirtyUnits(ctx, testInstance, "vda", roundZero)
				must(t, err)
				var ranges []copy.Range
				for _, d := range dirty {
					ranges = append(ranges, copy.Range(d))
				}
				must(t, p.Copier.KeepUnits(cursors+"last-kept", move.KeptUnits{Ranges: ranges}))
				p.history.Read, p.history.ReadDone = true, true
				if saved {
					must(t, p.Destroy(testInstance))
				}
				p.done = (*livePhase).same
				return p
			})
		})
	}
}

func TestMatrixOfTheEndOfAGeneration(t *testing.T) {
	matrix(t, func(t *testing.T) *livePhase {
		p := live(t, move.KindLiveEnd, hv.StateRunning, api.MigrationCopying).swapped(t)
		must(t, p.Copier.KeepUnits(cursors+"r000000-kept", move.KeptUnits{}))
		must(t, p.StartTracking(context.Background(), testInstance, "vda", "somebody-elses", hvtest.BlockSize))
		p.done = func(p *livePhase) error {
			p.Copier.Mu.Lock()
			defer p.Copier.Mu.Unlock()
			if len(p.Copier.Kept) > 0 {
				return fmt.Errorf("kept: %v", p.Copier.Kept)
			}
			return p.wantNames(map[string]bool{"somebody-elses": true})
		}
		return p
	})
}

func TestMatrixOfUntracking(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
		t.Run(string(state), func(t *testing.T) {
			matrix(t, func(t *testing.T) *livePhase {
				p := live(t, move.KindLiveUntrack, state, api.MigrationCancelling)
				if state.Active() {
					p.swapped(t)
				}
				must(t, p.Guards.Set(testInstance, p.in.Owner(), "it is off"))
				must(t, p.Copier.KeepUnits(cursors+"r000000-kept", move.KeptUnits{}))
				p.done = (*livePhase).nothingLeft
				return p
			})
		})
	}
}

func (p *livePhase) run(t *testing.T) op.Status {
	t.Helper()
	return runOp(t, p)
}

func runOp(t *testing.T, p optest.World) op.Status {
	t.Helper()
	runner, err := op.New(op.Config{Journal: optest.NewJournal(), Describe: request.Describe})
	must(t, err)
	defer runner.Stop()
	runner.Register(p.Plans()...)
	must(t, runner.Submit(t.Context(), p.Op()))
	st, err := runner.Wait(t.Context(), p.Op().ID)
	must(t, err)
	return st
}

// Rule R5: a missing bitmap is not an empty one.
func TestAGuestThatWasNotFollowedWithoutAGapEndsTheGeneration(t *testing.T) {
	restart := func(t *testing.T, p *livePhase) { must(t, p.Destroy(testInstance)); must(t, p.Start(testInstance)) }
	for name, tc := range map[string]struct {
		kind string
		lose func(*testing.T, *livePhase)
	}{
		"swap after a restart":          {move.KindLiveSwap, restart},
		"swap after it went off":        {move.KindLiveSwap, func(t *testing.T, p *livePhase) { must(t, p.Destroy(testInstance)) }},
		"swap without its bitmap":       {move.KindLiveSwap, func(t *testing.T, p *livePhase) { must(t, p.RemoveBitmap(testInstance, "vda", roundZero)) }},
		"round after a restart":         {move.KindLiveRound, restart},
		"round without its bitmap":      {move.KindLiveRound, func(t *testing.T, p *livePhase) { must(t, p.RemoveBitmap(testInstance, "vda", roundZero)) }},
		"last read after a restart":     {move.KindLiveLastRead, restart},
		"last read without its bitmap":  {move.KindLiveLastRead, func(t *testing.T, p *livePhase) { must(t, p.RemoveBitmap(testInstance, "vda", roundZero)) }},
		"last read of one that was off": {move.KindLiveLastRead, func(t *testing.T, p *livePhase) { p.history.Tracked[0].Process = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			var p *livePhase
			switch tc.kind {
			case move.KindLiveSwap:
				p = live(t, tc.kind, hv.StateRunning, api.MigrationCopying).tracked(t)
				p.in.Round = 1
			case move.KindLiveRound:
				p = live(t, tc.kind, hv.StateRunning, api.MigrationCopying).swapped(t)
			default:
				p = suspendedLive(t, tc.kind)
			}
			tc.lose(t, p)
			if st := p.run(t); st.State != op.StateUndone || st.Failure == nil || st.Failure.Code != string(api.CodeBitmapLost) {
				t.Errorf("the op is %s: %+v, want undone because of %s", st.State, st.Failure, api.CodeBitmapLost)
			}
		})
	}
}

// The whole copy needs no bitmap, and the pause may follow: no guest may be paused for a generation
// that has ended.
func TestAGuestThatGoesOffInTheWholeCopyEndsTheGeneration(t *testing.T) {
	p := live(t, move.KindLiveRound, hv.StateRunning, api.MigrationCopying).tracked(t)
	p.in.UntilBytes = p.in.Src.SizeBytes
	must(t, p.Destroy(testInstance))
	if st := p.run(t); st.State != op.StateUndone || st.Failure == nil || st.Failure.Code != string(api.CodeBitmapLost) {
		t.Errorf("the op is %s: %+v, want undone because of %s", st.State, st.Failure, api.CodeBitmapLost)
	}
}

func TestAGuestThatRunsOnBeforeTheDecisionIsSeen(t *testing.T) {
	read := suspendedLive(t, move.KindLiveLastRead)
	must(t, read.Resume(t.Context(), testInstance))
	last := suspendedLive(t, move.KindLiveLast)
	must(t, last.SwapTracking(t.Context(), testInstance, "vda", roundZero, lastBitmap, hvtest.BlockSize))
	must(t, last.Copier.KeepUnits(cursors+"last-kept", move.KeptUnits{}))
	last.history.Read, last.history.ReadDone = true, true
	must(t, last.Resume(t.Context(), testInstance))
	last.GuestWrites()
	must(t, last.Suspend(t.Context(), testInstance)) // and it is paused again
	for name, p := range map[string]*livePhase{"last read": read, "last copy": last} {
		if st := p.run(t); st.State != op.StateUndone || st.Failure.Details["ran_on"] != true {
			t.Errorf("%s: the op is %s: %+v, want a refusal with ran_on", name, st.State, st.Failure)
		}
	}
}

// src has the guests' last writes, so no operator is needed: the registry takes the move back.
func TestALastCopyOfWhatIsNotKeptAnyMoreIsUndone(t *testing.T) {
	p := suspendedLive(t, move.KindLiveLast)
	must(t, p.SwapTracking(t.Context(), testInstance, "vda", roundZero, lastBitmap, hvtest.BlockSize))
	p.history.Read, p.history.ReadDone = true, true
	if st := p.run(t); st.State != op.StateUndone || st.Failure == nil || !strings.Contains(st.Failure.Message, "is not kept any more") {
		t.Errorf("the op is %s: %+v, want undone", st.State, st.Failure)
	}
}

// Rules R1 to R4 and R6, as far as one host can know.
func TestACallThatIsNotItsTurnIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		kind string
		row  api.MigrationState
		edit func(*livePhase)
	}{
		"round before tracking":          {move.KindLiveRound, api.MigrationCopying, func(p *livePhase) { p.history.Tracked = nil }},
		"round before its swap":          {move.KindLiveRound, api.MigrationCopying, func(p *livePhase) { p.in.Round = 2 }},
		"swap before the round is ended": {move.KindLiveSwap, api.MigrationCopying, func(p *livePhase) { p.in.Round = 2 }},
		"swap that leaves a round out":   {move.KindLiveSwap, api.MigrationCopying, func(p *livePhase) { p.in.Round, p.history.Copied = 3, true }},
		"swap of an ended generation":    {move.KindLiveSwap, api.MigrationCopying, func(p *livePhase) { p.in.Round, p.history.Copied, p.history.Ended = 2, true, 1 }},
		"round after the last read":      {move.KindLiveRound, api.MigrationCopying, func(p *livePhase) { p.history.Read = true }},
		"tracking after untrack":         {move.KindLiveTrack, api.MigrationCopying, func(p *livePhase) { p.history = move.LiveHistory{Over: true} }},
		"round while it is cancelled":    {move.KindLiveRound, api.MigrationCancelling, func(*livePhase) {}},
		"last read before the pause":     {move.KindLiveLastRead, api.MigrationCopying, func(p *livePhase) { p.history.Copied = true }},
		"last read without the round":    {move.KindLiveLastRead, api.MigrationCompleting, func(*livePhase) {}},
		"last copy without the read":     {move.KindLiveLast, api.MigrationCompleting, func(*livePhase) {}},
		"untrack while it is copied":     {move.KindLiveUntrack, api.MigrationCopying, func(*livePhase) {}},
	} {
		t.Run(name, func(t *testing.T) {
			p := live(t, tc.kind, hv.StateRunning, tc.row).swapped(t)
			tc.edit(p)
			before, err := p.names()
			must(t, err)
			if st := p.run(t); st.State != op.StateUndone || st.Failure == nil || st.Failure.Code != string(api.CodeStateForbidden) {
				t.Errorf("the op is %s: %+v, want undone because of %s", st.State, st.Failure, api.CodeStateForbidden)
			}
			must(t, p.wantNames(before))
		})
	}
}
