// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
	"github.com/volferry/volferry/internal/op/optest"
)

// phase is a world in which a migration has come so far that one op kind is
// next, and what must hold when that op is over.
type phase struct {
	*world
	kind string
	spec Spec
	// handedOver is how the guest was when it was left to a person.
	handedOver hv.State
	// done and undone judge the world after the op.
	done, undone func(*phase) error
}

// Plans implements optest.World.
func (p *phase) Plans() []op.Plan {
	host := func(context.Context) (Host, error) { return Host{ID: testHost, Epoch: 1}, nil }
	plans := newEnv(p.ports(), fakeHistory{DstNote{Ours: true}}, host, func(string) {}, slog.New(slog.DiscardHandler)).Plans()
	for _, plan := range plans {
		if plan.Kind == kindRelease {
			stopWhenAsked(p, &plan.Steps[len(plan.Steps)-1])
		}
	}
	return plans
}

// Op implements optest.World.
func (p *phase) Op() op.Op {
	in, err := json.Marshal(input{Spec: p.spec, RequestID: "r"})
	if err != nil {
		panic(err)
	}
	return op.Op{
		ID: "6f0f7f6e-6c3c-4c39-9a7c-2f2c6a1e0aaa", Kind: p.kind, Group: p.spec.MigrationID,
		Keys: []string{p.spec.key()}, Input: in, CreatedAt: time.Unix(1, 0),
	}
}

// Check implements optest.World.
func (p *phase) Check(state op.State) error {
	if state == op.StateDone {
		return p.done(p)
	}
	return p.undone(p)
}

// started is a world between start and complete, with the copy made and writes
// in the overlay. Whether the instance runs now is up to state.
func started(t *testing.T, state hv.State, method string) *phase {
	t.Helper()
	before := state
	if method == MethodOverlay {
		before = hv.StateRunning // it ran for a while in any case
	}
	p := &phase{world: newWorld(t, before), spec: testSpec(method)}
	ctx := context.Background()
	_, err := p.registry.RegisterMigration(ctx, "", api.MigrationRegister{ID: testMigration, Dst: p.spec.Dst, Epoch: 1})
	must(t, err)
	_, err = p.registry.TransitionMigration(ctx, "", testMigration, api.MigrationTransition{
		From: []api.MigrationState{api.MigrationStarting}, To: api.MigrationStarted, Epoch: 1,
	})
	must(t, err)
	_, err = p.CreateVolume(ctx, "new", p.spec.Dst.Name, "raw", testSize)
	must(t, err)
	switch method {
	case MethodOverlay:
		must(t, p.Fake.CreateOverlay(overlayPath, p.spec.srcImage(), testSize))
		must(t, p.SetConfigChain(ctx, testInstance, "vda", p.spec.overlayChain()))
		must(t, p.Snapshot(ctx, testInstance, "vda", p.spec.overlayImage()))
		must(t, p.Copy(srcPath, dstPath))
		for range 10 {
			p.guestWrites()
		}
	case MethodOffline:
		must(t, p.guards.Set(testInstance, p.spec.owner(), "held"))
		must(t, p.Copy(srcPath, dstPath))
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

// onOverlayStill: the op is undone, and the migration is where it was.
func onOverlayStill(p *phase) error {
	p.setQuiet()
	r := &recorder{}
	p.AssertNoWriteLost(r)
	p.AssertClean(r)
	dom, err := p.Fake.Domain(context.Background(), testInstance)
	if err != nil {
		return err
	}
	if at := positionOf(&p.spec, dom.ConfigDisk("vda")); at != onOverlay {
		r.Errorf("the persistent chain is %s", at)
	}
	if dom.State.Active() && positionOf(&p.spec, dom.LiveDisk("vda")) != onOverlay {
		r.Errorf("the live chain is %s", positionOf(&p.spec, dom.LiveDisk("vda")))
	}
	if g := p.guards.all(); len(g) > 0 {
		r.Errorf("guards are left: %v", g)
	}
	return errors.Join(r.problems...)
}

// onSrcStill: the op of a mirror is undone, and the guest is on src.
func onSrcStill(p *phase) error {
	err := p.settled(srcPath)
	if dom, e := p.Fake.Domain(context.Background(), testInstance); e != nil || dom.Live[0].Mirror != nil {
		err = errors.Join(err, errors.New("the mirror is left"), e)
	}
	return err
}

// row checks the registry's row of the migration.
func (p *phase) row(want api.MigrationState) error {
	row, err := p.registry.Migration(context.Background(), testMigration)
	if err != nil || row.State != want {
		return fmt.Errorf("the registry's row is %q, want %q (%w)", row.State, want, err)
	}
	return nil
}

func TestStartMatrix(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StatePaused, hv.StateStopped} {
		t.Run(string(state), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				return &phase{
					world: newWorld(t, state), kind: kindStart, spec: testSpec(MethodOverlay),
					done: func(p *phase) error {
						return errors.Join(p.row(api.MigrationStarted), onOverlayStill(p), p.srcUntouchedSince())
					},
					undone: notBegun,
				}
			}})
		})
	}
}

// jobLeft: a complete leaves its job to the next one, or to the cancel, and
// nothing else. It ends it, so that the rest can be judged.
func (p *phase) jobLeft() error {
	dom, err := p.Fake.Domain(context.Background(), testInstance)
	if err != nil || !dom.State.Active() {
		return err
	}
	mirror := dom.LiveDisk("vda").Mirror
	if mirror == nil {
		return nil
	}
	if mirror.Job != hv.JobCopy || mirror.Image != p.spec.dstImage() {
		return fmt.Errorf("a job is left: %+v", mirror)
	}
	return p.BreakJob(testInstance, "vda")
}

// srcUntouchedSince: nobody has src open for writing.
func (p *phase) srcUntouchedSince() error {
	if n := p.Writers(srcPath); n != 0 {
		return fmt.Errorf("%d writers have src open", n)
	}
	return nil
}

// notBegun: start is undone, and nothing is left of it.
func notBegun(p *phase) error {
	err := p.settled(srcPath)
	if p.Exists(dstPath) {
		err = errors.Join(err, errors.New("dst is left"))
	}
	if row, e := p.registry.Migration(context.Background(), testMigration); e == nil && !row.State.Final() {
		err = errors.Join(err, fmt.Errorf("the registry's row is left %s", row.State))
	}
	return err
}

func TestStartOfflineMatrix(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		return &phase{
			world: newWorld(t, hv.StateStopped), kind: kindStartOffline, spec: testSpec(MethodOffline),
			done: func(p *phase) error {
				if len(p.guards.all()) != 1 {
					return errors.New("the instance is not held")
				}
				return p.row(api.MigrationStarted)
			},
			undone: notBegun,
		}
	}})
}

func TestCompleteMatrix(t *testing.T) {
	for _, c := range []struct {
		name, kind, method string
		state              hv.State
	}{
		{"running", kindCompleteLive, MethodOverlay, hv.StateRunning},
		{"paused by a person", kindCompleteLive, MethodOverlay, hv.StatePaused},
		{"stopped", kindCompleteCold, MethodOverlay, hv.StateStopped},
		{"offline", kindCompleteOffline, MethodOffline, hv.StateStopped},
	} {
		t.Run(c.name, func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				p := started(t, c.state, c.method)
				p.kind = c.kind
				p.done = func(p *phase) error {
					err := errors.Join(p.settled(dstPath), p.row(api.MigrationCompleted))
					if p.registry.volume().Location.Path != dstPath {
						err = errors.Join(err, errors.New("the registry has the volume elsewhere"))
					}
					return err
				}
				p.undone = func(p *phase) error {
					if c.method == MethodOffline {
						return p.row(api.MigrationStarted)
					}
					return errors.Join(p.jobLeft(), onOverlayStill(p), p.srcUntouchedSince(), p.row(api.MigrationStarted))
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
		{"running", kindCancelLive, MethodOverlay, hv.StateRunning, false},
		{"paused by a person", kindCancelLive, MethodOverlay, hv.StatePaused, false},
		{"running, in a fold", kindCancelLive, MethodOverlay, hv.StateRunning, true},
		{"paused by a person, in a fold", kindCancelLive, MethodOverlay, hv.StatePaused, true},
		{"stopped", kindCancelCold, MethodOverlay, hv.StateStopped, false},
		{"offline", kindCancelOffline, MethodOffline, hv.StateStopped, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				p := started(t, c.state, c.method)
				p.kind = c.kind
				if c.folding {
					p.fold(t)
				}
				p.done = func(p *phase) error {
					err := errors.Join(p.settled(srcPath), p.row(api.MigrationCancelled))
					if p.Exists(dstPath) {
						err = errors.Join(err, errors.New("dst is left"))
					}
					return err
				}
				p.undone = func(p *phase) error {
					if c.method == MethodOffline {
						return nil
					}
					return errors.Join(p.jobLeft(), onOverlayStill(p))
				}
				return p
			}})
		})
	}
}

func TestStartMirrorMatrix(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		return &phase{
			world: newWorld(t, hv.StateRunning), kind: kindStartMirror, spec: testSpec(MethodMirror),
			done: func(p *phase) error {
				if !p.Exists(dstPath) {
					return errors.New("dst is not made")
				}
				return errors.Join(p.row(api.MigrationStarted), p.settled(srcPath))
			},
			undone: notBegun,
		}
	}})
}

func TestMirrorMatrix(t *testing.T) {
	for _, state := range activeStates {
		t.Run(string(state), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				p := started(t, state, MethodMirror)
				p.kind = kindMirror
				p.done = (*phase).mirrored
				p.undone = func(p *phase) error { // the job may be left, for the cancel
					p.setQuiet()
					r := &recorder{}
					p.AssertNoWriteLost(r)
					return errors.Join(errors.Join(r.problems...), p.row(api.MigrationStarted))
				}
				return p
			}})
		})
	}
}

// mirrored: the guest is on src, and every write of it is on dst as well.
func (p *phase) mirrored() error {
	dom, err := p.Fake.Domain(context.Background(), testInstance)
	if err != nil {
		return err
	}
	live := dom.LiveDisk("vda")
	if live.Mirror == nil || !live.Mirror.Ready || positionOf(&p.spec, live) != onSrc {
		return fmt.Errorf("the live disk is %+v, want a ready mirror on src", live)
	}
	return p.copier.Compare(context.Background(), p.spec.srcImage(), p.spec.dstImage(), testSize, nil)
}

func TestCompleteMirrorMatrix(t *testing.T) {
	for _, state := range activeStates {
		t.Run(string(state), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				p := mirroring(t, state)
				p.kind, p.spec.Verify = kindCompleteMirror, VerifyFull
				p.done = func(p *phase) error {
					return errors.Join(p.settled(dstPath), p.row(api.MigrationCompleted))
				}
				// The mirror stays, for the next try or for the cancel.
				p.undone = func(p *phase) error { return errors.Join(p.mirrored(), p.row(api.MigrationStarted)) }
				return p
			}})
		})
	}
}

func TestCancelMirrorMatrix(t *testing.T) {
	for _, state := range activeStates {
		t.Run(string(state), func(t *testing.T) {
			optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
				p := mirroring(t, state)
				p.kind = kindCancelMirror
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

// fold begins the job of a complete, which is left when that is undone.
func (p *phase) fold(t *testing.T) {
	t.Helper()
	must(t, p.BlockCopy(context.Background(), testInstance, "vda", p.spec.dstImage(), hv.CopyOptions{Shallow: true, Synchronous: true}))
}

// mirroring is a world whose mirror is ready.
func mirroring(t *testing.T, state hv.State) *phase {
	t.Helper()
	p := started(t, state, MethodMirror)
	must(t, p.BlockCopy(context.Background(), testInstance, "vda", p.spec.dstImage(), hv.CopyOptions{Synchronous: true}))
	p.Step(testBlocks + 1)
	return p
}
