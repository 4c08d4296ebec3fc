// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

var allStates = []hv.State{hv.StateRunning, hv.StatePaused, hv.StateStopped}

func forAllStates(t *testing.T, f func(t *testing.T, d *daemon)) {
	t.Helper()
	for _, state := range allStates {
		t.Run(string(state), func(t *testing.T) { inBubble(t, state, f) })
	}
}

func TestVolumeMigrateEndsAtDstInEveryState(t *testing.T) {
	forAllStates(t, func(_ *testing.T, d *daemon) {
		d.moved(d.until(d.migrate(), api.MigrationCompleted))
	})
}

func TestVolumeThatIsNotAttachedMoves(t *testing.T) {
	inBubble(t, hv.StateStopped, func(t *testing.T, d *daemon) {
		must(t, d.world.Undefine(testInstance))
		d.world.Unattached()
		mig := d.until(d.migrate(), api.MigrationCompleted)
		got, err := d.world.ReadImage(mig.Dst.Path)
		must(t, err)
		if len(got) != testBlocks/2 {
			t.Errorf("dst has %d blocks of data, want %d", len(got), testBlocks/2)
		}
	})
}

func TestStartFreezesSrcUntilCancel(t *testing.T) {
	forAllStates(t, func(t *testing.T, d *daemon) {
		mig := d.begin(toNewPool)
		before, err := d.world.ReadImage(srcPath)
		must(t, err)
		for range 50 {
			d.world.GuestWrites()
		}
		after, err := d.world.ReadImage(srcPath)
		must(t, err)
		if len(before) != len(after) {
			t.Error("src was written after start had returned")
		}
		for b, v := range before {
			if after[b] != v {
				t.Errorf("block %d of src changed after start had returned", b)
			}
		}
		_, _, err = d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		d.stayed()
	})
}

func TestTheGuestMayStopAndStartBetweenStartAndComplete(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.begin(toNewPool)
		must(t, d.world.Stop(testInstance))
		_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCopied)
		must(t, d.world.Start(testInstance))
		for range 20 {
			d.world.GuestWrites()
		}
		must(t, d.world.Stop(testInstance))
		_, _, err = d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.SrcAttachmentID, DstAttachmentID: mig.DstAttachmentID})
		must(t, err)
		d.moved(d.until(mig.ID, api.MigrationCompleted))
	})
}

func TestExternalCopyIsComparedBeforeItIsUsed(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.begin(api.MigrationTarget{ToPool: "new", ExternalCopy: true})
		must(t, d.world.Copy(srcPath, mig.Dst.Path))
		must(t, d.world.WriteBlock(mig.Dst.Path, 3, 99))
		complete := func() string {
			_, id, err := d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
			must(t, err)
			_, err = d.runner().Wait(context.Background(), id)
			must(t, err)
			return id
		}
		o, err := d.manager().Request(context.Background(), complete())
		must(t, err)
		if o.Error == nil || o.Error.Code != api.CodeCopyMismatch {
			t.Fatalf("complete of a wrong copy ended with %v, want copy_mismatch", o.Error)
		}
		if got, err := d.manager().Get(context.Background(), mig.ID); err != nil || got.State != api.MigrationStarted {
			t.Fatalf("the migration is %s (%v), want started", got.State, err)
		}
		must(t, d.world.WriteBlock(mig.Dst.Path, 3, 0))
		complete()
		d.moved(d.until(mig.ID, api.MigrationCompleted))
	})
}

func TestCompleteIsRefusedBeforeTheCopyIsThere(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.begin(toNewPool)
		_, _, err := d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
		if api.CodeOf(err) != api.CodeCopyNotVerified {
			t.Errorf("complete without a copy: %v, want copy_not_verified", err)
		}
		d.world.Copier.Gate = make(chan struct{})
		_, _, err = d.manager().Copy(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCopying)
		_, _, err = d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
		if api.CodeOf(err) != api.CodeCopyNotVerified {
			t.Errorf("complete during the copy: %v, want copy_not_verified", err)
		}
		_, _, err = d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		d.stayed()
	})
}

func TestRepeatedCallsGetTheSameAnswer(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		req := StartRequest{OpID: uuid.NewString(), VolumeID: testVolume, Target: toNewPool}
		mig, err := d.manager().Start(ctx, req)
		must(t, err)
		again, err := d.manager().Start(ctx, req)
		if err != nil || again.ID != mig.ID {
			t.Errorf("the same start made migration %s (%v), want %s", again.ID, err, mig.ID)
		}
		other := req
		other.Target.Verify = move.VerifyNone
		if _, err := d.manager().Start(ctx, other); api.CodeOf(err) != api.CodeIdempotencyMismatch {
			t.Errorf("another start under the same op id: %v, want idempotency_mismatch", err)
		}
		other.OpID = uuid.NewString()
		if _, err := d.manager().Start(ctx, other); api.CodeOf(err) != api.CodeMigrationActive {
			t.Errorf("a second start: %v, want migration_active", err)
		}
		d.until(mig.ID, api.MigrationStarted)
		_, _, err = d.manager().Copy(ctx, d.call(mig.SrcAttachmentID))
		must(t, err)
		d.until(mig.ID, api.MigrationCopied)
		complete := Call{OpID: uuid.NewString(), Subject: mig.SrcAttachmentID, DstAttachmentID: mig.DstAttachmentID}
		_, first, err := d.manager().Complete(ctx, complete)
		must(t, err)
		d.until(mig.ID, api.MigrationCompleted)
		complete.OpID = uuid.NewString()
		done, second, err := d.manager().Complete(ctx, complete)
		if err != nil || second != first || done.State != api.MigrationCompleted {
			t.Errorf("complete of a completed migration: op %s (%v), want %s", second, err, first)
		}
		if _, _, err := d.manager().Cancel(ctx, d.call(mig.ID)); api.CodeOf(err) != api.CodePastPointOfNoReturn {
			t.Errorf("cancel of a completed migration: %v, want past_point_of_no_return", err)
		}
	})
}

type groupReads struct {
	history.Journal
	n int
}

func (j *groupReads) Group(ctx context.Context, group string) ([]op.Op, error) {
	j.n++
	return j.Journal.Group(ctx, group)
}

func TestTheHistoryOfWhatIsOverIsNotReadToListWhatIsOpen(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.begin(toNewPool)
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		_, err = d.manager().List(context.Background(), false)
		must(t, err)
		open := d.begin(toNewPool)
		reads := &groupReads{Journal: d.journal}
		d.manager().History.Journal = reads
		got, err := d.manager().List(context.Background(), false)
		must(t, err)
		if len(got) != 1 || got[0].ID != open.ID || reads.n != 1 {
			t.Errorf("%d migrations are open after %d reads, want %s alone and 1 read", len(got), reads.n, open.ID)
		}
		if all, err := d.manager().List(context.Background(), true); err != nil || len(all) != 2 {
			t.Errorf("%d migrations in all (%v), want 2", len(all), err)
		}
	})
}

func TestAfterCancelOnlyCancelIsAnswered(t *testing.T) {
	forAllStates(t, func(t *testing.T, d *daemon) {
		ctx := context.Background()
		mig := d.begin(toNewPool)
		_, first, err := d.manager().Cancel(ctx, d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		if _, second, err := d.manager().Cancel(ctx, d.call(mig.ID)); err != nil || second != first {
			t.Errorf("cancel of a cancelled migration: op %s (%v), want %s", second, err, first)
		}
		_, _, err = d.manager().Complete(ctx, Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
		if api.CodeOf(err) != api.CodeNoMigration {
			t.Errorf("complete after cancel: %v, want no_migration", err)
		}
		if _, _, err := d.manager().Copy(ctx, d.call(mig.ID)); api.CodeOf(err) != api.CodeNoMigration {
			t.Errorf("copy after cancel: %v, want no_migration", err)
		}
	})
}

func TestCallsWithoutAStartAreNoMigration(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		c := d.call(testSrcAtt)
		for name, do := range map[string]func(context.Context, Call) (api.Migration, string, error){
			"copy": d.manager().Copy, "complete": d.manager().Complete, "cancel": d.manager().Cancel,
		} {
			if _, _, err := do(context.Background(), c); api.CodeOf(err) != api.CodeNoMigration {
				t.Errorf("%s without a start: %v, want no_migration", name, err)
			}
		}
	})
}

func TestCancelWinsOverACopyAndOverAFold(t *testing.T) {
	t.Run("copy", func(t *testing.T) {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			d.world.Copier.Gate = make(chan struct{})
			id := d.migrate()
			d.until(id, api.MigrationCopying)
			_, _, err := d.manager().Cancel(context.Background(), d.call(id))
			must(t, err)
			d.until(id, api.MigrationCancelled)
			d.stayed()
		})
	})
	t.Run("fold", func(t *testing.T) {
		inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
			d.world.SetStep(0) // the mirror does not become ready
			id := d.migrate()
			d.until(id, api.MigrationCompleting)
			d.world.SetStep(2)
			_, _, err := d.manager().Cancel(context.Background(), d.call(id))
			must(t, err)
			d.until(id, api.MigrationCancelled)
			d.stayed()
		})
	})
}

func TestARestartedDaemonGoesOn(t *testing.T) {
	forAllStates(t, func(_ *testing.T, d *daemon) {
		d.world.Copier.Gate = make(chan struct{})
		id := d.migrate()
		d.until(id, api.MigrationCopying)
		d.Restart()
		close(d.world.Copier.Gate)
		d.moved(d.until(id, api.MigrationCompleted))
	})
}

func TestARegistryThatIsAwayIsWaitedForAfterThePivot(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Inject(hvtest.Fault{Call: "Pivot", After: true, Do: func() { d.world.Registry.SetDown(true) }})
		id := d.migrate()
		pass(time.Hour)
		if mig := d.get(id); mig.State != api.MigrationCompleting || mig.Phase != "waiting for registry" {
			t.Fatalf("the migration is %s (%s) without its registry", mig.State, mig.Phase)
		}
		if dom, err := d.world.Fake.Domain(context.Background(), testInstance); err != nil || dom.State != hv.StateRunning {
			t.Errorf("the guest is %s (%v) while the registry is away", dom.State, err)
		}
		d.world.Registry.SetDown(false)
		d.manager().Wake(false, true)
		d.moved(d.until(id, api.MigrationCompleted))
	})
}
