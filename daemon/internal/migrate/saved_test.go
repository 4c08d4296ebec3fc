// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
	"github.com/volferry/volferry/internal/op/optest"
)

func (i *fakeImages) Connect(context.Context, string) error { return nil }

const savedCopy, savedDrop = testMigration + ".copy", testMigration + ".drop"

// savedRow is the registry's row of the move with all guests paused.
func (r *fakeRegistry) savedRow(state api.MigrationState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows[testMigration] = api.Migration{ID: testMigration, VolumeID: testVolume, Method: MethodSave, State: state}
	r.vol.MigrationID = testMigration
}

// flip is the registry that puts the volume at dst.
func (r *fakeRegistry) flip() {
	r.savedRow(api.MigrationCompleting)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.vol.Location.Path = dstPath
}

func savedSpec() Spec {
	s := testSpec(MethodSave)
	s.InstanceID, s.InstanceName, s.Target, s.SrcAttachmentID, s.DstAttachmentID = "", "", "", "", ""
	return s
}

// copiedWhole: dst is there, and equal to src.
func (w *world) copiedWhole() error {
	src, err := w.ReadImage(srcPath)
	if err != nil {
		return err
	}
	dst, err := w.ReadImage(dstPath)
	if err == nil && fmt.Sprint(src) != fmt.Sprint(dst) {
		err = errors.New("dst is not equal to src")
	}
	return err
}

// nothingMade: src is there, dst is not, and no cursor is left that a next copy
// would go on from.
func (w *world) nothingMade() error {
	var err error
	if !w.Exists(srcPath) {
		err = errors.New("src is gone")
	}
	if w.Exists(dstPath) {
		err = errors.Join(err, errors.New("dst is left"))
	}
	w.copier.mu.Lock()
	defer w.copier.mu.Unlock()
	if len(w.copier.done) > 0 {
		err = errors.Join(err, errors.New("the cursor is left"))
	}
	return err
}

func TestMatrixOfACopyWithAllGuestsPaused(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		w := newWorld(t, hv.StateStopped)
		w.registry.savedRow(api.MigrationCopying)
		return &phase{
			world: w, kind: kindCopySaved, spec: savedSpec(),
			done:   func(p *phase) error { return p.copiedWhole() },
			undone: func(p *phase) error { return p.nothingMade() },
		}
	}})
}

func TestMatrixOfADroppedCopy(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		w := newWorld(t, hv.StateStopped)
		_, err := w.CreateVolume(context.Background(), "new", testSpec(MethodSave).Dst.Name, "raw", testSize)
		must(t, err)
		w.registry.savedRow(api.MigrationCancelling)
		return &phase{
			world: w, kind: kindDropDst, spec: savedSpec(),
			done: func(p *phase) error { return p.nothingMade() },
			undone: func(p *phase) error {
				if !p.Exists(srcPath) {
					return errors.New("src is gone")
				}
				return nil
			},
		}
	}})
}

func TestMatrixOfADeletedSource(t *testing.T) {
	optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
		w := newWorld(t, hv.StateStopped)
		_, err := w.CreateVolume(context.Background(), "new", testSpec(MethodSave).Dst.Name, "raw", testSize)
		must(t, err)
		must(t, w.Copy(srcPath, dstPath))
		spec := savedSpec()
		must(t, w.SetConfigChain(context.Background(), testInstance, "vda", spec.dstChain()))
		w.registry.flip()
		spec.DeleteSource = true
		return &phase{
			world: w, kind: kindDropSrc, spec: spec,
			done: func(p *phase) error {
				if p.Exists(srcPath) {
					return errors.New("src is left")
				}
				return nil
			},
			undone: func(p *phase) error {
				if !p.Exists(dstPath) {
					return errors.New("dst is gone")
				}
				return nil
			},
		}
	}})
}

func copySaved() api.CopySaved {
	s := savedSpec()
	dst := s.Dst
	dst.Path = ""
	return api.CopySaved{MigrationID: testMigration, VolumeID: testVolume, VolumeName: "vol", Src: s.Src, Dst: dst}
}

func dropSaved(what string, s *Spec) api.DropSaved {
	in := api.DropSaved{MigrationID: testMigration, VolumeID: testVolume, Drop: what, Location: s.Dst}
	if what == api.DropSrc {
		in.Location = s.Src
	}
	return in
}

// savedDaemon is a daemon on a world in which all guests are saved.
func savedDaemon(t *testing.T, f func(t *testing.T, d *daemon)) {
	t.Helper()
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		d.world.registry.savedRow(api.MigrationCopying)
		f(t, d)
	})
}

// untilOp waits until an op is over.
func (d *daemon) untilOp(id string) api.Op {
	d.t.Helper()
	for range 1000 {
		o, err := d.manager().Request(context.Background(), id)
		must(d.t, err)
		if o.FinishedAt != nil || o.State == string(op.StateNeedsOperator) {
			return o
		}
		pass(patience / 1000)
	}
	d.t.Fatalf("op %s does not end", id)
	return api.Op{}
}

func TestACopyWithAllGuestsPausedSaysWhereItIsAndChangesNoRow(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		for range 2 { // the same call again is the same copy
			_, err := d.manager().CopySaved(ctx, savedCopy, copySaved())
			must(t, err)
			o := d.untilOp(savedCopy)
			if o.State != string(op.StateDone) || o.Location == nil || o.Location.Path != dstPath || o.MigrationID != testMigration {
				t.Fatalf("the op is %+v at %+v", o, o.Location)
			}
		}
		must(t, d.world.copiedWhole())
		if len(d.world.registry.order) > 0 {
			t.Errorf("the registry's row went to %v", d.world.registry.order)
		}
		open, err := d.manager().List(ctx, false)
		must(t, err)
		if len(open) > 0 {
			t.Errorf("the migration is open on this host after its copy: %+v", open)
		}
	})
}

// lateJournal has something happen before the ops of a group are read.
type lateJournal struct {
	Journal
	happen func()
}

func (j *lateJournal) Group(ctx context.Context, group string) ([]op.Op, error) {
	j.happen()
	return j.Journal.Group(ctx, group)
}

func TestACopyThatEndsWhileItIsLookedAtSaysWhereItIs(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		d.world.copier.gate = make(chan struct{})
		_, err := d.manager().CopySaved(context.Background(), savedCopy, copySaved())
		must(t, err)
		synctest.Wait()
		let := sync.OnceFunc(func() { close(d.world.copier.gate) })
		d.manager().journal = &lateJournal{Journal: d.journal, happen: func() {
			let()
			pass(patience)
		}}
		o, err := d.manager().Request(context.Background(), savedCopy)
		must(t, err)
		if o.State != string(op.StateDone) || o.Location == nil {
			t.Errorf("the op is %+v", o)
		}
	})
}

func TestACopyWithAllGuestsPausedIsListedWhileItRuns(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		d.world.copier.gate = make(chan struct{})
		_, err := d.manager().CopySaved(context.Background(), savedCopy, copySaved())
		must(t, err)
		synctest.Wait()
		open, err := d.manager().List(context.Background(), false)
		must(t, err)
		if len(open) != 1 || open[0].ID != testMigration || open[0].Method != MethodSave || open[0].State != api.MigrationCopying || open[0].BytesTotal != testSize {
			t.Errorf("open are %+v", open)
		}
		close(d.world.copier.gate)
		d.untilOp(savedCopy)
	})
}

func TestACopyWithAllGuestsPausedGoesOnAfterARestart(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		d.world.copier.gate = make(chan struct{})
		_, err := d.manager().CopySaved(context.Background(), savedCopy, copySaved())
		must(t, err)
		synctest.Wait()
		d.restart()
		close(d.world.copier.gate)
		if o := d.untilOp(savedCopy); o.State != string(op.StateDone) {
			t.Errorf("the op is %+v", o)
		}
		must(t, d.world.copiedWhole())
	})
}

func TestAVolumeThatAGuestHasOpenIsNotCopiedAsSaved(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		must(t, d.world.Start(testInstance))
		_, err := d.manager().CopySaved(context.Background(), savedCopy, copySaved())
		must(t, err)
		o := d.untilOp(savedCopy)
		if o.State != string(op.StateUndone) || o.Error == nil || o.Error.Code != api.CodeVolumeInUse {
			t.Errorf("the op is %+v", o)
		}
		must(t, d.world.nothingMade())
	})
}

func TestAGuestThatWasStartedDuringTheCopyUndoesIt(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.registry.atCall(func(bool) { // the first after the copy
			w.copier.mu.Lock()
			defer w.copier.mu.Unlock()
			if len(w.copier.done) > 0 {
				_ = w.Start(testInstance)
			}
		})
		_, err := d.manager().CopySaved(context.Background(), savedCopy, copySaved())
		must(t, err)
		o := d.untilOp(savedCopy)
		if o.State != string(op.StateUndone) || o.Error == nil || o.Error.Code != api.CodeVolumeInUse {
			t.Errorf("the op is %+v", o)
		}
		must(t, w.nothingMade())
	})
}

func TestACopyIsMadeOnlyWhileTheRegistryWantsIt(t *testing.T) {
	for _, state := range []api.MigrationState{api.MigrationCancelling, api.MigrationCompleting, api.MigrationCancelled} {
		t.Run(string(state), func(t *testing.T) {
			savedDaemon(t, func(t *testing.T, d *daemon) {
				d.world.registry.savedRow(state)
				_, err := d.manager().CopySaved(context.Background(), savedCopy, copySaved())
				must(t, err)
				if o := d.untilOp(savedCopy); o.State != string(op.StateUndone) || o.Error.Code != api.CodeStateForbidden {
					t.Errorf("the op is %+v", o)
				}
				must(t, d.world.nothingMade())
			})
		})
	}
}

func TestAFailedCopyCanBeMadeAgainUnderAnotherID(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		must(t, d.world.Start(testInstance))
		_, err := d.manager().CopySaved(context.Background(), savedCopy, copySaved())
		must(t, err)
		d.untilOp(savedCopy)
		must(t, d.world.Stop(testInstance))
		_, err = d.manager().CopySaved(context.Background(), savedCopy+".2", copySaved())
		must(t, err)
		if o := d.untilOp(savedCopy + ".2"); o.State != string(op.StateDone) {
			t.Errorf("the op is %+v", o)
		}
		must(t, d.world.copiedWhole())
	})
}

func TestADropStopsTheCopyAndNoneFollows(t *testing.T) {
	for _, copied := range []bool{false, true} {
		t.Run(fmt.Sprintf("copied %t", copied), func(t *testing.T) {
			savedDaemon(t, func(t *testing.T, d *daemon) {
				ctx, spec := context.Background(), savedSpec()
				if !copied {
					d.world.copier.gate = make(chan struct{})
				}
				_, err := d.manager().CopySaved(ctx, savedCopy, copySaved())
				must(t, err)
				synctest.Wait()
				d.world.registry.savedRow(api.MigrationCancelling)
				must(t, d.manager().DropSaved(ctx, savedDrop, dropSaved(api.DropDst, &spec)))
				if o := d.untilOp(savedDrop); o.State != string(op.StateDone) {
					t.Fatalf("the op is %+v", o)
				}
				must(t, d.world.nothingMade())
				d.world.registry.savedRow(api.MigrationCopying)
				if _, err := d.manager().CopySaved(ctx, savedCopy+".2", copySaved()); api.CodeOf(err) != api.CodeStateForbidden {
					t.Errorf("a copy after the drop: %v", err)
				}
			})
		})
	}
}

func TestADropOfWhatWasNeverCopiedHereKeepsALateCopyOut(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		ctx, spec := context.Background(), savedSpec()
		d.world.registry.savedRow(api.MigrationCancelling)
		must(t, d.manager().DropSaved(ctx, savedDrop, dropSaved(api.DropDst, &spec)))
		if o := d.untilOp(savedDrop); o.State != string(op.StateDone) {
			t.Fatalf("the op is %+v", o)
		}
		if _, err := d.manager().CopySaved(ctx, savedCopy, copySaved()); api.CodeOf(err) != api.CodeStateForbidden {
			t.Errorf("a copy after the drop: %v", err)
		}
	})
}

func TestDstIsNotDroppedOnceTheVolumeIsThere(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		ctx, spec := context.Background(), savedSpec()
		_, err := d.manager().CopySaved(ctx, savedCopy, copySaved())
		must(t, err)
		d.untilOp(savedCopy)
		d.world.registry.flip()
		must(t, d.manager().DropSaved(ctx, savedDrop, dropSaved(api.DropDst, &spec)))
		if o := d.untilOp(savedDrop); o.State != string(op.StateUndone) || o.Error.Code != api.CodeStateForbidden {
			t.Errorf("the op is %+v", o)
		}
		must(t, d.world.copiedWhole())
	})
}

func TestSrcIsDeletedOnlyAfterTheVolumeHasMoved(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		ctx, spec := context.Background(), savedSpec()
		if err := d.manager().DropSaved(ctx, "early", dropSaved(api.DropSrc, &spec)); api.CodeOf(err) != api.CodeStateForbidden {
			t.Errorf("before the copy: %v", err)
		}
		_, err := d.manager().CopySaved(ctx, savedCopy, copySaved())
		must(t, err)
		d.untilOp(savedCopy)
		must(t, d.manager().DropSaved(ctx, "before", dropSaved(api.DropSrc, &spec)))
		if o := d.untilOp("before"); o.State != string(op.StateUndone) || !d.world.Exists(srcPath) {
			t.Errorf("before the flip: %+v", o)
		}
		d.world.registry.flip()
		must(t, d.world.SetConfigChain(ctx, testInstance, "vda", spec.dstChain()))
		d.world.registry.savedRow(api.MigrationCompleted)
		must(t, d.manager().DropSaved(ctx, "late", dropSaved(api.DropSrc, &spec)))
		if o := d.untilOp("late"); o.State != string(op.StateUndone) || !d.world.Exists(srcPath) {
			t.Errorf("when it is over, and src may be another volume's: %+v", o)
		}
		d.world.registry.flip()
		must(t, d.manager().DropSaved(ctx, "after", dropSaved(api.DropSrc, &spec)))
		if o := d.untilOp("after"); o.State != string(op.StateDone) || d.world.Exists(srcPath) {
			t.Errorf("after the flip: %+v", o)
		}
	})
}

func TestNobodyButTheRegistryEndsAMoveWithAllGuestsPaused(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		d.world.copier.gate = make(chan struct{})
		_, err := d.manager().CopySaved(ctx, savedCopy, copySaved())
		must(t, err)
		synctest.Wait()
		for name, do := range map[string]func(context.Context, Call) (api.Migration, string, error){
			"copy": d.manager().Copy, "complete": d.manager().Complete, "cancel": d.manager().Cancel,
		} {
			if _, _, err := do(ctx, d.call(testMigration)); api.CodeOf(err) != api.CodeStateForbidden {
				t.Errorf("%s: %v", name, err)
			}
		}
		close(d.world.copier.gate)
		if o := d.untilOp(savedCopy); o.State != string(op.StateDone) {
			t.Errorf("the copy is %+v", o)
		}
	})
}
