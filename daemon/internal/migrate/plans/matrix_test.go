// SPDX-License-Identifier: Apache-2.0

package plans_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/op/optest"
	"github.com/volferry/volferry/daemon/internal/rbd"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

// The volume and the instance of a world.
const (
	testInstance  = migratetest.Instance
	testMigration = migratetest.Migration
	testHost      = migratetest.Host
	testBlocks    = migratetest.Blocks
	testSize      = migratetest.Size
	srcPath       = migratetest.SrcPath
	dstPath       = migratetest.DstPath
	overlayPath   = migratetest.OverlayPath
)

var must, testSpec, savedSpec = expect.OK, migratetest.NewSpec, migratetest.NewSavedSpec

// phase is a world before an op of a migration, with the checks for after the op.
type phase struct {
	*migratetest.World
	// kind is a key of ways, or the kind of an op that does not choose its steps.
	kind string
	spec move.Spec
	seal *image.Stamp // of src, nil if it was not frozen
	// snapshot is the snapshot of a frozen src, if it is an RBD image.
	snapshot *move.SrcSnapshot
	// dstPrint is the journal's fingerprint of a dst that was made at an address.
	dstPrint string
	// handedOver is the state of the guest when it was left to a person.
	handedOver hv.State
	// done and undone check the world after the op.
	done, undone func(*phase) error
}

// Plans implements optest.World.
func (p *phase) Plans() []op.Plan {
	all := p.env().Plans()
	for _, plan := range all {
		if plan.Kind == move.KindRollback {
			stopWhenAsked(p, &plan.Steps[len(plan.Steps)-1])
		}
	}
	return all
}

func (p *phase) env() *plans.Env {
	host := func(context.Context) (move.Host, error) { return move.Host{ID: testHost, Epoch: 1}, nil }
	history := migratetest.FakeHistory{Note: move.DstNote{Ours: true, Print: p.dstPrint}, Seal: p.seal, Snapshot: p.snapshot}
	return plans.NewEnv(p.Ports(), history, host, func(string) {}, slog.New(slog.DiscardHandler))
}

// Op implements optest.World.
func (p *phase) Op() op.Op {
	in, err := json.Marshal(move.Input{Spec: p.spec, RequestID: "r"})
	if err != nil {
		panic(err)
	}
	planned := op.Op{Kind: p.kind}
	if way, chooses := ways[p.kind]; chooses {
		planned = p.env().Plan(way.goal, way.Way)
	}
	return op.Op{
		ID: "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0aaa", Kind: planned.Kind, Group: p.spec.MigrationID,
		Keys: []string{p.spec.Key()}, Input: in, Steps: planned.Steps, Commit: planned.Commit, CreatedAt: time.Unix(1, 0),
	}
}

// Check implements optest.World.
func (p *phase) Check(state op.State) error {
	if state == op.StateDone {
		return p.done(p)
	}
	return p.undone(p)
}

// started is a world between start and complete, with a copy and with writes in the overlay. The
// instance is now in state.
func started(t *testing.T, state hv.State, method string) *phase {
	t.Helper()
	return startedOn(t, migratetest.NewWorld, state, method)
}

func startedOn(t *testing.T, world func(*testing.T, hv.State) *migratetest.World, state hv.State, method string) *phase {
	t.Helper()
	before := state
	if method == move.MethodOverlay {
		before = hv.StateRunning // it ran for a while in any case
	}
	p := &phase{World: world(t, before)}
	p.spec = p.Spec(method)
	ctx := context.Background()
	_, err := p.Registry.RegisterMigration(ctx, "", api.MigrationRegister{ID: testMigration, Dst: p.spec.Dst, Epoch: 1})
	must(t, err)
	_, err = p.Registry.TransitionMigration(ctx, "", testMigration, api.MigrationTransition{
		From: []api.MigrationState{api.MigrationStarting}, To: api.MigrationStarted, Epoch: 1,
	})
	must(t, err)
	switch {
	case p.spec.CreateDst && p.spec.Dst.Pool == "":
		must(t, p.CreateImage(p.spec.Dst.Path, hvtest.Raw, testSize))
		p.dstPrint, err = p.Images.Fingerprint(ctx, p.spec.Dst.Path)
		must(t, err)
	case p.spec.CreateDst:
		_, err = p.CreateVolume(ctx, "new", p.spec.Dst.Name, string(p.spec.Dst.Format), p.spec.SizeBytes(), p.spec.DstChain()[1:])
		must(t, err)
	}
	if p.spec.DstOnDevice() {
		must(t, p.CreateOnDevice(p.spec.Dst.Path, testSize))
	}
	switch method {
	case move.MethodOverlay:
		must(t, p.Fake.CreateOverlay(overlayPath, p.spec.SrcImage(), p.spec.OverlayBytes()))
		must(t, p.SetConfigChain(ctx, testInstance, "vda", p.spec.OverlayChain()))
		must(t, p.PutOverlay(ctx, testInstance, "vda", p.spec.OverlayImage()))
		p.snapshotSrc(t)
		must(t, p.Copy(p.spec.Src.Path, p.spec.Dst.Path))
		for range 10 {
			p.GuestWrites()
		}
	case move.MethodOffline:
		must(t, p.Guards.Set(testInstance, p.spec.Owner(), "held"))
		p.snapshotSrc(t)
		must(t, p.Copy(p.spec.Src.Path, p.spec.Dst.Path))
	}
	switch {
	case before == state:
	case state == hv.StatePaused:
		must(t, p.SuspendByUser(testInstance))
	case state == hv.StateStopped:
		must(t, p.Stop(testInstance))
	}
	return p
}

// snapshotSrc makes the snapshot of a src that is an RBD image, as a start does when no guest
// writes to src any more.
func (p *phase) snapshotSrc(t *testing.T) {
	t.Helper()
	if !p.spec.SrcKind().Snapshots {
		return
	}
	name := rbd.SnapshotName(testMigration)
	must(t, p.MakeImageSnapshot(t.Context(), p.spec.Src.Path, name))
	made, err := p.ImageSnapshot(t.Context(), p.spec.Src.Path, name)
	must(t, err)
	p.snapshot = &move.SrcSnapshot{Name: name, ID: made.ID}
	p.seal = &image.Stamp{SizeBytes: p.spec.Src.SizeBytes}
}

// onOverlayStill checks that the op is undone, and the migration as before.
func onOverlayStill(p *phase) error {
	p.SetQuiet()
	r := &hosttest.Recorder{}
	p.AssertNoWriteLost(r)
	p.AssertClean(r)
	dom, err := p.Fake.Domain(context.Background(), testInstance)
	if err != nil {
		return err
	}
	if at := move.PositionOf(&p.spec, dom.ConfigDisk("vda")); at != move.OnOverlay {
		r.Errorf("the persistent chain is %s", at)
	}
	if dom.State.Active() && move.PositionOf(&p.spec, dom.LiveDisk("vda")) != move.OnOverlay {
		r.Errorf("the live chain is %s", move.PositionOf(&p.spec, dom.LiveDisk("vda")))
	}
	if g := p.Guards.Guarded(); len(g) > 0 {
		r.Errorf("guards are left: %v", g)
	}
	return errors.Join(r.Problems...)
}

// onSrcStill checks that the op of a mirror is undone, and the guest is on src.
func onSrcStill(p *phase) error {
	err := p.Settled(srcPath)
	if dom, e := p.Fake.Domain(context.Background(), testInstance); e != nil || dom.Live[0].Mirror != nil {
		err = errors.Join(err, errors.New("the mirror is left"), e)
	}
	return err
}

func (p *phase) row(want api.MigrationState) error {
	row, err := p.Registry.Migration(context.Background(), testMigration)
	if err != nil || row.State != want {
		return fmt.Errorf("the registry's row is %q, want %q (%w)", row.State, want, err)
	}
	return nil
}

func TestStartMatrix(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StatePaused, hv.StateStopped} {
		onLiveKinds(t, string(state), func(t *testing.T, world func(*testing.T, hv.State) *migratetest.World) *phase {
			t.Helper()
			p := &phase{
				World: world(t, state), kind: startOverlay,
				done: func(p *phase) error {
					return errors.Join(p.row(api.MigrationStarted), onOverlayStill(p), p.srcUntouchedSince(), p.snapshotIsMade())
				},
				undone: notBegun,
			}
			p.spec = p.Spec(move.MethodOverlay)
			return p
		})
	}
}

// jobLeft checks that a complete leaves only its job, to the next one or to the cancel. It ends the
// job before the other checks.
func (p *phase) jobLeft() error {
	dom, err := p.Fake.Domain(context.Background(), testInstance)
	if err != nil || !dom.State.Active() {
		return err
	}
	mirror := dom.LiveDisk("vda").Mirror
	if mirror == nil {
		return nil
	}
	if mirror.Job != hv.JobCopy || mirror.Image != p.spec.DstImage() {
		return fmt.Errorf("a job is left: %+v", mirror)
	}
	return p.BreakJob(testInstance, "vda")
}

// srcUntouchedSince checks that no process has src open for writing.
func (p *phase) srcUntouchedSince() error {
	if n := p.Writers(p.spec.Src.Path); n != 0 {
		return fmt.Errorf("%d writers have src open", n)
	}
	return nil
}

// dstRemoved checks that a dst that the migration has made is deleted.
func (p *phase) dstRemoved() error {
	if p.Exists(p.spec.Dst.Path) && p.spec.CreateDst {
		return errors.New("dst is left")
	}
	return nil
}

// notBegun checks that start is undone, and nothing of it remains.
func notBegun(p *phase) error {
	err := errors.Join(p.SettledOn(p.spec.SrcImage()), p.dstRemoved())
	if row, e := p.Registry.Migration(context.Background(), testMigration); e == nil && !row.State.Final() {
		err = errors.Join(err, fmt.Errorf("the registry's row is left %s", row.State))
	}
	return err
}

func TestStartOfflineMatrix(t *testing.T) {
	for name, world := range map[string]func(*testing.T, hv.State) *migratetest.World{"of a file": migratetest.NewWorld, "of an RBD image": migratetest.RBDWorld} {
		t.Run(name, func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				p := &phase{
					World: world(t, hv.StateStopped), kind: startOffline,
					done: func(p *phase) error {
						if guards, _ := p.Guards.Of(testInstance); len(guards) != 1 {
							return errors.New("the instance is not held")
						}
						return errors.Join(p.row(api.MigrationStarted), p.snapshotIsMade())
					},
					undone: notBegun,
				}
				p.spec = p.Spec(move.MethodOffline)
				return p
			}})
		})
	}
}

// snapshotIsMade checks that a src that is an RBD image has the snapshot of its move, and was not
// written since.
func (p *phase) snapshotIsMade() error {
	if !p.spec.SrcKind().Snapshots {
		return nil
	}
	s, err := p.ImageSnapshot(context.Background(), p.spec.Src.Path, rbd.SnapshotName(testMigration))
	if err == nil && (s.ID == 0 || s.Written) {
		err = fmt.Errorf("the snapshot of src is %+v", s)
	}
	return err
}

// onLiveKinds runs the matrix on each kind of world for the move of a running guest's volume.
func onLiveKinds(t *testing.T, name string, begin func(*testing.T, func(*testing.T, hv.State) *migratetest.World) *phase) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		migratetest.OnLiveKinds(t, func(t *testing.T, world func(*testing.T, hv.State) *migratetest.World) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World { return begin(t, world) }})
		})
	})
}

func TestCompleteMatrix(t *testing.T) {
	for _, c := range []struct {
		name, kind, method string
		state              hv.State
	}{
		{"running", completeLive, move.MethodOverlay, hv.StateRunning},
		{"paused by a person", completeLive, move.MethodOverlay, hv.StatePaused},
		{"stopped", completeCold, move.MethodOverlay, hv.StateStopped},
		{"offline", completeOffline, move.MethodOffline, hv.StateStopped},
	} {
		onLiveKinds(t, c.name, func(t *testing.T, world func(*testing.T, hv.State) *migratetest.World) *phase {
			t.Helper()
			p := startedOn(t, world, c.state, c.method)
			p.kind = c.kind
			if p.kind == completeLive && p.spec.Background() {
				p.kind = completeBackground
			}
			p.done = func(p *phase) error {
				err := errors.Join(p.SettledOn(p.spec.DstImage()), p.row(api.MigrationCompleted))
				if p.Registry.CurrentVolume().Location.Path != p.spec.Dst.Path {
					err = errors.Join(err, errors.New("the registry has the volume elsewhere"))
				}
				return err
			}
			p.undone = func(p *phase) error {
				if c.method == move.MethodOffline {
					return p.row(api.MigrationStarted)
				}
				return errors.Join(p.jobLeft(), onOverlayStill(p), p.srcUntouchedSince(), p.row(api.MigrationStarted))
			}
			return p
		})
	}
}

// Before src is deleted, the op checks whether it was written since it was frozen.
func TestMatrixOfACompleteThatDeletesItsSource(t *testing.T) {
	for _, c := range []struct {
		kind, method string
		state        hv.State
	}{
		{completeLive, move.MethodOverlay, hv.StateRunning},
		{completeCold, move.MethodOverlay, hv.StateStopped},
		{completeOffline, move.MethodOffline, hv.StateStopped},
	} {
		t.Run(c.kind, func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				p := started(t, c.state, c.method)
				seal, err := p.Images.Stamp(t.Context(), srcPath)
				must(t, err)
				p.kind, p.seal, p.spec.DeleteSource = c.kind, &seal, true
				p.done = func(p *phase) error {
					p.SrcGoes = true
					return errors.Join(p.SettledOn(p.spec.DstImage()), p.row(api.MigrationCompleted))
				}
				p.undone = func(p *phase) error {
					if !p.Exists(srcPath) {
						return errors.New("src is gone")
					}
					return p.row(api.MigrationStarted)
				}
				return p
			}})
		})
	}
}

func TestCancelMatrix(t *testing.T) {
	for _, c := range []struct {
		name, kind, method string
		state              hv.State
		folding            bool
	}{
		{"running", cancelLive, move.MethodOverlay, hv.StateRunning, false},
		{"paused by a person", cancelLive, move.MethodOverlay, hv.StatePaused, false},
		{"running, in a fold", cancelLive, move.MethodOverlay, hv.StateRunning, true},
		{"paused by a person, in a fold", cancelLive, move.MethodOverlay, hv.StatePaused, true},
		{"stopped", cancelCold, move.MethodOverlay, hv.StateStopped, false},
		{"offline", cancelOffline, move.MethodOffline, hv.StateStopped, false},
	} {
		onLiveKinds(t, c.name, func(t *testing.T, world func(*testing.T, hv.State) *migratetest.World) *phase {
			t.Helper()
			p := startedOn(t, world, c.state, c.method)
			p.kind = c.kind
			if c.folding {
				p.fold(t)
			}
			p.done = func(p *phase) error {
				return errors.Join(p.SettledOn(p.spec.SrcImage()), p.row(api.MigrationCancelled), p.dstRemoved())
			}
			p.undone = func(p *phase) error {
				if c.method == move.MethodOffline {
					return nil
				}
				return errors.Join(p.jobLeft(), onOverlayStill(p))
			}
			return p
		})
	}
}

func TestStartMirrorMatrix(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		return &phase{
			World: migratetest.NewWorld(t, hv.StateRunning), kind: startMirror, spec: testSpec(move.MethodMirror),
			done: func(p *phase) error {
				if !p.Exists(dstPath) {
					return errors.New("dst is not made")
				}
				return errors.Join(p.row(api.MigrationStarted), p.Settled(srcPath))
			},
			undone: notBegun,
		}
	}})
}

func TestMirrorMatrix(t *testing.T) {
	for _, state := range migratetest.ActiveStates {
		t.Run(string(state), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				p := started(t, state, move.MethodMirror)
				p.kind = mirror
				p.done = (*phase).mirrored
				p.undone = func(p *phase) error { // the job may remain, for the cancel
					p.SetQuiet()
					r := &hosttest.Recorder{}
					p.AssertNoWriteLost(r)
					return errors.Join(errors.Join(r.Problems...), p.row(api.MigrationStarted))
				}
				return p
			}})
		})
	}
}

// mirrored checks that the guest is on src, and dst has all its writes too.
func (p *phase) mirrored() error {
	dom, err := p.Fake.Domain(context.Background(), testInstance)
	if err != nil {
		return err
	}
	live := dom.LiveDisk("vda")
	if live.Mirror == nil || !live.Mirror.Ready || move.PositionOf(&p.spec, live) != move.OnSrc {
		return fmt.Errorf("the live disk is %+v, want a ready mirror on src", live)
	}
	return p.Copier.Compare(context.Background(), p.spec.SrcChain(), p.spec.DstChain(), testSize, nil)
}

func TestCompleteMirrorMatrix(t *testing.T) {
	for _, state := range migratetest.ActiveStates {
		t.Run(string(state), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				p := mirroring(t, state)
				p.kind, p.spec.Verify = completeMirror, move.VerifyFull
				p.done = func(p *phase) error {
					return errors.Join(p.Settled(dstPath), p.row(api.MigrationCompleted))
				}
				// The mirror stays, for the next try or for the cancel.
				p.undone = func(p *phase) error { return errors.Join(p.mirrored(), p.row(api.MigrationStarted)) }
				return p
			}})
		})
	}
}

func TestCancelMirrorMatrix(t *testing.T) {
	for _, state := range migratetest.ActiveStates {
		t.Run(string(state), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				p := mirroring(t, state)
				p.kind = cancelMirror
				p.done = func(p *phase) error {
					err := errors.Join(onSrcStill(p), p.row(api.MigrationCancelled))
					if p.Exists(dstPath) {
						err = errors.Join(err, errors.New("dst is left"))
					}
					return err
				}
				p.undone = func(*phase) error { return nil }
				return p
			}})
		})
	}
}

// fold begins the job of a complete, which an undo leaves.
func (p *phase) fold(t *testing.T) {
	t.Helper()
	must(t, p.BlockCopy(context.Background(), testInstance, "vda", p.spec.DstImage(), hv.BlockCopyOptions{Shallow: true, Synchronous: true}))
}

// mirroring is a world with a ready mirror.
func mirroring(t *testing.T, state hv.State) *phase {
	t.Helper()
	p := started(t, state, move.MethodMirror)
	must(t, p.BlockCopy(context.Background(), testInstance, "vda", p.spec.DstImage(), hv.BlockCopyOptions{Synchronous: true}))
	p.Step(testBlocks + 1)
	return p
}
