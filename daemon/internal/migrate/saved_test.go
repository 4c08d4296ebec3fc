// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

const savedCopy, savedDrop = testMigration + ".copy", testMigration + ".drop"

func copySaved() api.CopySaved {
	s := savedSpec()
	dst := s.Dst
	dst.Path = ""
	return api.CopySaved{MigrationID: testMigration, VolumeID: testVolume, VolumeName: "vol", Src: s.Src, Dst: dst}
}

func dropSaved(what string, s *move.Spec) api.DropSaved {
	in := api.DropSaved{MigrationID: testMigration, VolumeID: testVolume, Drop: what, Location: s.Dst}
	if what == api.DropSrc {
		in.Location = s.Src
	}
	return in
}

// savedDaemon is a daemon on a world with all guests saved.
func savedDaemon(t *testing.T, f func(t *testing.T, d *daemon)) {
	t.Helper()
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		d.world.Registry.SavedRow(api.MigrationCopying)
		f(t, d)
	})
}

func (d *daemon) untilOp(id string) api.Op {
	d.t.Helper()
	for range 1000 {
		o, err := d.manager().Request(context.Background(), id)
		must(d.t, err)
		if o.FinishedAt != nil || o.State == string(op.StateNeedsOperator) {
			return o
		}
		pass(moveTimeout / 1000)
	}
	d.t.Fatalf("op %s does not end", id)
	return api.Op{}
}

func TestACopyWithAllGuestsPausedSaysWhereItIsAndChangesNoRow(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		for range 2 { // the same call again is the same copy
			err := d.manager().Parts.CopySaved(ctx, savedCopy, copySaved())
			must(t, err)
			o := d.untilOp(savedCopy)
			if o.State != string(op.StateDone) || o.Location == nil || o.Location.Path != dstPath || o.MigrationID != testMigration {
				t.Fatalf("the op is %+v at %+v", o, o.Location)
			}
		}
		must(t, d.world.CopiedWhole())
		if len(d.world.Registry.Order) > 0 {
			t.Errorf("the registry's row went to %v", d.world.Registry.Order)
		}
		open, err := d.manager().List(ctx, false)
		must(t, err)
		if len(open) > 0 {
			t.Errorf("the migration is open on this host after its copy: %+v", open)
		}
	})
}

// lateJournal runs happen before the ops of a group are read.
type lateJournal struct {
	history.Journal
	happen func()
}

func (j *lateJournal) Group(ctx context.Context, group string) ([]op.Op, error) {
	j.happen()
	return j.Journal.Group(ctx, group)
}

func TestACopyThatEndsWhileItIsLookedAtSaysWhereItIs(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		d.world.Copier.Gate = make(chan struct{})
		err := d.manager().Parts.CopySaved(context.Background(), savedCopy, copySaved())
		must(t, err)
		synctest.Wait()
		let := sync.OnceFunc(func() { close(d.world.Copier.Gate) })
		d.manager().History.Journal = &lateJournal{Journal: d.journal, happen: func() {
			let()
			pass(moveTimeout)
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
		d.world.Copier.Gate = make(chan struct{})
		err := d.manager().Parts.CopySaved(context.Background(), savedCopy, copySaved())
		must(t, err)
		synctest.Wait()
		open, err := d.manager().List(context.Background(), false)
		must(t, err)
		if len(open) != 1 || open[0].ID != testMigration || open[0].Method != move.MethodSave || open[0].State != api.MigrationCopying || open[0].BytesTotal != testSize {
			t.Errorf("open are %+v", open)
		}
		close(d.world.Copier.Gate)
		d.untilOp(savedCopy)
	})
}

func TestACopyWithAllGuestsPausedGoesOnAfterARestart(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		d.world.Copier.Gate = make(chan struct{})
		err := d.manager().Parts.CopySaved(context.Background(), savedCopy, copySaved())
		must(t, err)
		synctest.Wait()
		d.Restart()
		close(d.world.Copier.Gate)
		if o := d.untilOp(savedCopy); o.State != string(op.StateDone) {
			t.Errorf("the op is %+v", o)
		}
		must(t, d.world.CopiedWhole())
	})
}

func TestAVolumeThatAGuestHasOpenIsNotCopiedAsSaved(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		must(t, d.world.Start(testInstance))
		err := d.manager().Parts.CopySaved(context.Background(), savedCopy, copySaved())
		must(t, err)
		o := d.untilOp(savedCopy)
		if o.State != string(op.StateUndone) || o.Error == nil || o.Error.Code != api.CodeVolumeInUse {
			t.Errorf("the op is %+v", o)
		}
		must(t, d.world.NothingMade())
	})
}

func TestAGuestThatWasStartedDuringTheCopyUndoesIt(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		w := d.world
		w.Registry.Moments.Look = func() { // the first look after the copy
			w.Copier.Mu.Lock()
			defer w.Copier.Mu.Unlock()
			if len(w.Copier.Done) > 0 {
				_ = w.Start(testInstance)
			}
		}
		err := d.manager().Parts.CopySaved(context.Background(), savedCopy, copySaved())
		must(t, err)
		o := d.untilOp(savedCopy)
		if o.State != string(op.StateUndone) || o.Error == nil || o.Error.Code != api.CodeVolumeInUse {
			t.Errorf("the op is %+v", o)
		}
		must(t, w.NothingMade())
	})
}

func TestACopyIsMadeOnlyWhileTheRegistryWantsIt(t *testing.T) {
	for _, state := range []api.MigrationState{api.MigrationCancelling, api.MigrationCompleting, api.MigrationCancelled} {
		t.Run(string(state), func(t *testing.T) {
			savedDaemon(t, func(t *testing.T, d *daemon) {
				d.world.Registry.SavedRow(state)
				err := d.manager().Parts.CopySaved(context.Background(), savedCopy, copySaved())
				must(t, err)
				if o := d.untilOp(savedCopy); o.State != string(op.StateUndone) || o.Error.Code != api.CodeStateForbidden {
					t.Errorf("the op is %+v", o)
				}
				must(t, d.world.NothingMade())
			})
		})
	}
}

func TestAFailedCopyCanBeMadeAgainUnderAnotherID(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		must(t, d.world.Start(testInstance))
		err := d.manager().Parts.CopySaved(context.Background(), savedCopy, copySaved())
		must(t, err)
		d.untilOp(savedCopy)
		must(t, d.world.Stop(testInstance))
		err = d.manager().Parts.CopySaved(context.Background(), savedCopy+".2", copySaved())
		must(t, err)
		if o := d.untilOp(savedCopy + ".2"); o.State != string(op.StateDone) {
			t.Errorf("the op is %+v", o)
		}
		must(t, d.world.CopiedWhole())
	})
}

// copiesSaved runs the copy of the saved guest's volume to its end.
func (d *daemon) copiesSaved(t *testing.T) {
	t.Helper()
	err := d.manager().Parts.CopySaved(context.Background(), savedCopy, copySaved())
	must(t, err)
	d.untilOp(savedCopy)
}

// flipsSaved ends the move as the registry does: the volume, and the definition, are at dst.
func (d *daemon) flipsSaved(t *testing.T) {
	t.Helper()
	spec := savedSpec()
	d.world.Registry.Flip()
	must(t, d.world.SetConfigChain(context.Background(), testInstance, "vda", spec.DstChain()))
	d.world.Registry.SavedRow(api.MigrationCompleted)
}

func TestADropStopsTheCopyAndNoneFollows(t *testing.T) {
	for _, copied := range []bool{false, true} {
		t.Run(fmt.Sprintf("copied %t", copied), func(t *testing.T) {
			savedDaemon(t, func(t *testing.T, d *daemon) {
				ctx, spec := context.Background(), savedSpec()
				if !copied {
					d.world.Copier.Gate = make(chan struct{})
				}
				err := d.manager().Parts.CopySaved(ctx, savedCopy, copySaved())
				must(t, err)
				synctest.Wait()
				d.world.Registry.SavedRow(api.MigrationCancelling)
				must(t, d.manager().Parts.DropSaved(ctx, savedDrop, dropSaved(api.DropDst, &spec)))
				if o := d.untilOp(savedDrop); o.State != string(op.StateDone) {
					t.Fatalf("the op is %+v", o)
				}
				must(t, d.world.NothingMade())
				d.world.Registry.SavedRow(api.MigrationCopying)
				if err := d.manager().Parts.CopySaved(ctx, savedCopy+".2", copySaved()); api.CodeOf(err) != api.CodeStateForbidden {
					t.Errorf("a copy after the drop: %v", err)
				}
			})
		})
	}
}

func TestADropOfWhatWasNeverCopiedHereKeepsALateCopyOut(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		ctx, spec := context.Background(), savedSpec()
		d.world.Registry.SavedRow(api.MigrationCancelling)
		must(t, d.manager().Parts.DropSaved(ctx, savedDrop, dropSaved(api.DropDst, &spec)))
		if o := d.untilOp(savedDrop); o.State != string(op.StateDone) {
			t.Fatalf("the op is %+v", o)
		}
		if err := d.manager().Parts.CopySaved(ctx, savedCopy, copySaved()); api.CodeOf(err) != api.CodeStateForbidden {
			t.Errorf("a copy after the drop: %v", err)
		}
	})
}

func TestDstIsNotDroppedOnceTheVolumeIsThere(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		ctx, spec := context.Background(), savedSpec()
		d.copiesSaved(t)
		d.world.Registry.Flip()
		must(t, d.manager().Parts.DropSaved(ctx, savedDrop, dropSaved(api.DropDst, &spec)))
		if o := d.untilOp(savedDrop); o.State != string(op.StateUndone) || o.Error.Code != api.CodeStateForbidden {
			t.Errorf("the op is %+v", o)
		}
		must(t, d.world.CopiedWhole())
	})
}

func TestSrcIsDeletedOnlyAfterTheVolumeHasMoved(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		ctx, spec := context.Background(), savedSpec()
		if err := d.manager().Parts.DropSaved(ctx, "early", dropSaved(api.DropSrc, &spec)); api.CodeOf(err) != api.CodeStateForbidden {
			t.Errorf("before the copy: %v", err)
		}
		d.copiesSaved(t)
		must(t, d.manager().Parts.DropSaved(ctx, "before", dropSaved(api.DropSrc, &spec)))
		if o := d.untilOp("before"); o.State != string(op.StateUndone) || !d.world.Exists(srcPath) {
			t.Errorf("before the flip: %+v", o)
		}
		d.flipsSaved(t)
		must(t, d.manager().Parts.DropSaved(ctx, "late", dropSaved(api.DropSrc, &spec)))
		if o := d.untilOp("late"); o.State != string(op.StateUndone) || !d.world.Exists(srcPath) {
			t.Errorf("when it is over, and src may be another volume's: %+v", o)
		}
		d.world.Registry.Flip()
		must(t, d.manager().Parts.DropSaved(ctx, "after", dropSaved(api.DropSrc, &spec)))
		if o := d.untilOp("after"); o.State != string(op.StateDone) || d.world.Exists(srcPath) {
			t.Errorf("after the flip: %+v", o)
		}
	})
}

// This host's journal does not have the end of such a move.
func TestASourceThatAMoveOfTheRegistryHasLeftIsOnlyWrittenIfItIsWritten(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		d.copiesSaved(t)
		d.flipsSaved(t)
		stamp, err := d.world.Images.Stamp(ctx, srcPath) // the fake counts writes in place of time
		must(t, err)
		ended := time.Unix(0, stamp.ModifiedNS)
		d.world.Registry.With(func() {
			row := d.world.Registry.Rows[testMigration]
			row.FinishedAt = &ended
			d.world.Registry.Rows[testMigration] = row
		})
		released, err := d.manager().Released.List(ctx, "")
		must(t, err)
		if len(released) != 1 || released[0].Written || !released[0].ReleasedAt.Equal(ended) {
			t.Errorf("released is %+v, want src, which nobody has written", released)
		}
		if got := d.writtenSources(); len(got) != 0 {
			t.Errorf("written are %q", got)
		}
		must(t, d.world.WriteBlock(srcPath, 5, 4711))
		if got := d.writtenSources(); len(got) != 1 {
			t.Errorf("written are %q, want src", got)
		}
	})
}

func TestNobodyButTheRegistryEndsAMoveWithAllGuestsPaused(t *testing.T) {
	savedDaemon(t, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		d.world.Copier.Gate = make(chan struct{})
		err := d.manager().Parts.CopySaved(ctx, savedCopy, copySaved())
		must(t, err)
		synctest.Wait()
		for name, do := range map[string]func(context.Context, Call) (api.Migration, string, error){
			"copy": d.manager().Copy, "complete": d.manager().Complete, "cancel": d.manager().Cancel,
		} {
			if _, _, err := do(ctx, d.call(testMigration)); api.CodeOf(err) != api.CodeStateForbidden {
				t.Errorf("%s: %v", name, err)
			}
		}
		close(d.world.Copier.Gate)
		if o := d.untilOp(savedCopy); o.State != string(op.StateDone) {
			t.Errorf("the copy is %+v", o)
		}
	})
}
