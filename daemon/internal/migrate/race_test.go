// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/changes"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

func TestACancelDuringTheStartDoesNotWaitForTheCopy(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Copier.Gate = make(chan struct{}) // the copy would not end
		cancelled := make(chan error, 1)
		d.world.Inject(hvtest.Fault{Call: "Snapshot", Do: func() {
			open, err := d.manager().List(context.Background(), false)
			must(t, err)
			go func() {
				_, _, err := d.manager().Cancel(context.Background(), d.call(open[0].ID))
				cancelled <- err
			}()
			pass(time.Millisecond)
		}})
		id := d.migrate()
		must(t, <-cancelled)
		d.until(id, api.MigrationCancelled)
		d.stayed()
	})
}

func TestTheSameStartFromManySidesIsOneMigration(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		req := StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: toNewPool}
		ids := make([]string, 8)
		var calls sync.WaitGroup
		for i := range ids {
			calls.Go(func() {
				mig, err := d.manager().Start(context.Background(), req)
				if err != nil {
					t.Error(err)
				}
				ids[i] = mig.ID
			})
		}
		calls.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Errorf("one request began migrations %s and %s", ids[0], id)
			}
		}
		d.until(ids[0], api.MigrationStarted)
	})
}

// An image that the registry has freed may belong to another volume at once.
func TestNothingIsDeletedAfterTheRegistryHasFreedIt(t *testing.T) {
	for _, state := range allStates {
		t.Run(string(state), func(t *testing.T) {
			inBubble(t, state, func(t *testing.T, d *daemon) {
				mig := d.begin(toNewPool)
				d.world.Registry.WatchChanges(func(to api.MigrationState) {
					if to == api.MigrationCancelled && d.world.Exists(mig.Dst.Path) {
						t.Error("dst is free in the registry and not removed yet")
					}
				})
				_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
				must(t, err)
				d.until(mig.ID, api.MigrationCancelled)
				d.stayed()
			})
		})
	}
}

func TestASourceThatSomebodyUsesIsNotDeleted(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Registry.WatchChanges(func(to api.MigrationState) {
			if to == api.MigrationCompleted { // src is free: another volume takes it
				must(t, d.world.Define(hv.Domain{ID: testHost, Name: "other", Config: []hv.Disk{{
					Target: "vdb", Terminated: true, Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: srcPath}},
				}}}))
			}
		})
		mig, err := d.manager().Start(context.Background(), StartRequest{
			OpID: uuid.NewString(), VolumeID: testVolume, Composite: true, Target: api.MigrationTarget{ToPool: "new", DeleteSource: true},
		})
		must(t, err)
		d.until(mig.ID, api.MigrationNeedsOperator)
		if !d.world.Exists(srcPath) {
			t.Error("src was deleted")
		}
	})
}

func TestACallMeansTheMigrationOfItsSrcAttachment(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		mig := d.until(d.migrate(), api.MigrationCompleted)
		for name, c := range map[string]Call{
			"the attachment that the last migration made": {OpID: uuid.NewString(), Subject: mig.DstAttachmentID, DstAttachmentID: mig.DstAttachmentID},
			"another destination":                         {OpID: uuid.NewString(), Subject: mig.SrcAttachmentID, DstAttachmentID: uuid.NewString()},
		} {
			if _, _, err := d.manager().Complete(ctx, c); api.CodeOf(err) != api.CodeNoMigration {
				t.Errorf("complete of %s: %v, want no_migration", name, err)
			}
		}
	})
}

// The call applies to the second migration of an attachment, also if the host's clock was set back
// after the first.
func TestACallMeansTheMigrationThatIsOpenWhateverTheClock(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		first := d.begin(toNewPool)
		_, _, err := d.manager().Cancel(ctx, d.call(first.ID))
		must(t, err)
		d.until(first.ID, api.MigrationCancelled)
		d.world.SetClock(-time.Hour)
		second := d.begin(toNewPool)
		if got, err := d.manager().Find(ctx, testSrcAtt); err != nil || got != second.ID {
			t.Errorf("the attachment's migration is %s (%v), want %s", got, err, second.ID)
		}
	})
}

func TestAClockThatIsSetBackDoesNotHoldAMigrationUp(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Inject(hvtest.Fault{Call: "Suspend", Do: func() {
			_ = d.world.Destroy(testInstance)
			d.world.SetClock(-24 * time.Hour)
		}})
		d.moved(d.until(d.migrate(), api.MigrationCompleted))
	})
}

func TestAFollowerOfAllMigrationsMissesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := changes.NewFeed()
		all := w.All(t.Context())
		for range 100_000 {
			w.Notify("busy")
		}
		w.Notify("quiet")
		seen := 0
		for id := range all {
			if seen++; id == "quiet" {
				break
			}
		}
		if seen > 2 {
			t.Errorf("told %d times of two migrations", seen)
		}
	})
}

// Another call is a new request, with all its tries.
func TestCallingAgainAfterTooManyReplansStartsOver(t *testing.T) {
	h := &history.Migration{}
	overtaken := func(request string) history.Op {
		o := history.Op{Goal: move.GoalComplete, RequestID: request}
		o.State, o.Failure = op.StateUndone, &op.Failure{Code: string(move.CodeWorldChanged)}
		return o
	}
	for range history.MaxReplans {
		h.Ops = append(h.Ops, overtaken("first"))
	}
	if _, _, ok := h.Next(); ok {
		t.Error("the first request is planned anew without end")
	}
	h.Ops = append(h.Ops, overtaken("second"))
	if _, request, ok := h.Next(); !ok || request != "second" {
		t.Errorf("the second request is not planned anew (%q)", request)
	}
}
