// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// stuck brings a whole move to a copy without space at dst.
func stuck(t *testing.T, d *daemon) api.Migration {
	t.Helper()
	d.world.Copier.Gate = make(chan struct{})
	id := d.migrate()
	mig := d.until(id, api.MigrationCopying)
	if mig.StoppedAt != nil || mig.Stopped() {
		t.Errorf("a copy that is at work has stopped since %v", mig.StoppedAt)
	}
	must(t, d.world.SetFull(mig.Dst.Path, true))
	close(d.world.Copier.Gate)
	return d.until(id, api.MigrationStarted)
}

func TestAMoveWhoseDestinationIsFullSaysThatItHasStoppedUntilItGoesOn(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := stuck(t, d)
		if mig.StoppedAt == nil || mig.Error == nil || mig.StoppedAt.Before(*mig.StartedAt) {
			t.Fatalf("it has stopped since %v (%v), want a time and a reason", mig.StoppedAt, mig.Error)
		}
		if c := api.CheckMoves([]api.Migration{mig}); c.Status != "fail" {
			t.Errorf("the check of the moves is %+v", c)
		}
		d.Restart()
		pass(time.Minute)
		if again := d.get(mig.ID); again.BytesDone != testSize/2 {
			t.Errorf("%d bytes are said to be copied, want the %d that were when it stopped", again.BytesDone, testSize/2)
		}
		if again := d.get(mig.ID); again.StoppedAt == nil || !again.StoppedAt.Equal(*mig.StoppedAt) {
			t.Errorf("after a restart it has stopped since %v, want %v", again.StoppedAt, mig.StoppedAt)
		}
		want := []string{"migration.stopped migration/" + mig.ID}
		if got := d.world.Audits(); !slices.Equal(got, want) {
			t.Errorf("the audit trail was told %q, want %q", got, want)
		}

		_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
		must(t, err)
		pass(time.Minute)
		if got := d.world.Audits(); !slices.Equal(got, slices.Repeat(want, 2)) {
			t.Errorf("after a second try without room the audit trail was told %q, want %q twice", got, want)
		}

		must(t, d.world.SetFull(mig.Dst.Path, false))
		_, _, err = d.manager().Copy(context.Background(), d.call(mig.ID))
		must(t, err)
		got := d.until(mig.ID, api.MigrationCopied, api.MigrationCompleting, api.MigrationCompleted)
		if got.StoppedAt != nil || got.Stopped() {
			t.Errorf("a move that was copied in a third try has stopped since %v", got.StoppedAt)
		}
	})
}

// The request was for the whole move, so its switch needs no further call.
func TestAWholeMoveWhoseCopyIsAskedForAgainGoesOnToItsEnd(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := stuck(t, d)
		if again, _ := mig.Cures(); again != mig.CopyCommand() {
			t.Errorf("the advice is %q, want the copy alone", again)
		}
		must(t, d.world.SetFull(mig.Dst.Path, false))
		_, opID, err := d.manager().Copy(context.Background(), d.call(mig.ID))
		must(t, err)
		o, err := d.manager().Await(context.Background(), opID)
		must(t, err)
		if got := d.get(mig.ID); o.State != api.OpDone || got.State != api.MigrationCompleted {
			t.Errorf("the request to copy is %s (%v) when the move is %s, want it to be done with the move", o.State, o.Error, got.State)
		}
		d.moved(d.get(mig.ID))
	})
}

// With an external copy the operator makes the steps: a copy by Volferry is one of them.
func TestAMoveWithAnExternalCopyWaitsAfterACopyByVolferry(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		id := d.migrateTo(api.MigrationTarget{ToPool: "new", ExternalCopy: true})
		d.until(id, api.MigrationStarted)
		_, _, err := d.manager().Copy(context.Background(), d.call(id))
		must(t, err)
		d.until(id, api.MigrationCopied)
		pass(time.Hour)
		if mig := d.get(id); mig.State != api.MigrationCopied || mig.Stopped() {
			t.Errorf("the move is %s, stopped since %v, want it copied and waiting for its complete", mig.State, mig.StoppedAt)
		}
	})
}

// As after a death of the daemon during a cancel.
func TestAMoveThatWasStoppedForACancelThatDidNotBeginSaysThatItStands(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Copier.Gate = make(chan struct{})
		id := d.migrate()
		d.until(id, api.MigrationCopying)
		must(t, d.runner().Interrupt(d.runner().Active()[0].Op.ID, history.ErrCancelled))
		mig := d.until(id, api.MigrationStarted)
		if mig.StoppedAt == nil || mig.Error == nil || mig.Error.Message != errCancelNotBegun.Message {
			t.Fatalf("it has stopped since %v (%v), want that its cancel has not begun", mig.StoppedAt, mig.Error)
		}
		_, _, err := d.manager().Cancel(context.Background(), d.call(id))
		must(t, err)
		d.until(id, api.MigrationCancelled)
		d.stayed()
	})
}

func TestACancelIsMadeAlsoIfItsCallerGoesAway(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Copier.Gate = make(chan struct{})
		id := d.migrate()
		d.until(id, api.MigrationCopying)
		ctx, goAway := context.WithCancel(context.Background())
		goAway()
		_, _, err := d.manager().Cancel(ctx, d.call(id))
		must(t, err)
		d.until(id, api.MigrationCancelled)
		d.stayed()
	})
}

func TestAMoveThatNeedsAnOperatorSaysSinceWhenAndTheAuditTrailIsTold(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig, _ := parked(t, d)
		pass(time.Minute)
		if got := d.get(mig.ID); got.StoppedAt == nil {
			t.Error("it does not say since when it needs an operator")
		}
		if got, want := d.world.Audits(), []string{"migration.stopped migration/" + mig.ID}; !slices.Equal(got, want) {
			t.Errorf("the audit trail was told %q, want %q", got, want)
		}
	})
}

func TestNobodyIsToldOfAStandstillThatIsACancelOrTheNextCallOfAnOperator(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := d.begin(toNewPool)
		if mig.Stopped() {
			t.Errorf("a move that is made step by step has stopped since %v", mig.StoppedAt)
		}
		d.world.Copier.Gate = make(chan struct{})
		_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCopying)
		_, _, err = d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		if got := d.world.Audits(); len(got) > 0 {
			t.Errorf("the audit trail was told %q", got)
		}
	})
}

// The kernel blocks the writes to unavailable storage, so the copy itself reports nothing.
func TestACopyWhoseStorageDoesNotAnswerSaysForHowLongItHasMadeNoProgress(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.world.Copier.Gate = make(chan struct{})
		id := d.migrate()
		d.until(id, api.MigrationCopying)
		pass(20 * time.Second)
		if got := d.get(id).Pacing; got != "" {
			t.Errorf("after 20 s it says %q", got)
		}
		pass(25 * time.Second)
		if got := d.get(id); got.Pacing != "no progress for 45s" || got.RateBytesPerSecond != 0 {
			t.Errorf("after 45 s it says %q, at %d B/s", got.Pacing, got.RateBytesPerSecond)
		}
		d.wantPacing(id, move.PacingKind{Doing: "stands_still"})
		slowest := int64(16 << 10) // at that limit a chunk takes a minute
		_, err := d.manager().Update(context.Background(), id, api.MigrationUpdate{BandwidthBytesPerSecond: &slowest})
		must(t, err)
		if got := d.get(id).Pacing; got != "" {
			t.Errorf("with a cap by which a chunk takes longer it says %q", got)
		}
		close(d.world.Copier.Gate)
		if done := d.until(id, api.MigrationCompleted); done.Pacing != "" {
			t.Errorf("at its end it says %q", done.Pacing)
		}
	})
}

func TestACopyThatGoesOnDoesNotCountTheTimeForWhichItHadStopped(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := stuck(t, d)
		d.until(mig.ID, api.MigrationStarted)
		pass(time.Hour)
		d.world.Copier.Gate = make(chan struct{})
		must(t, d.world.SetFull(mig.Dst.Path, false))
		_, _, err := d.manager().Copy(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCopying)
		pass(20 * time.Second)
		if got := d.get(mig.ID).Pacing; got != "" {
			t.Errorf("20 s after it went on it says %q", got)
		}
		close(d.world.Copier.Gate)
		d.until(mig.ID, api.MigrationCompleted)
	})
}

// The complete begins with a step that may show its own progress, and would show the end of the
// verification of the copy as a second one.
func TestTheProgressOfACopyIsNotShownForTheNextOp(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig, letGo := d.copying()
		shown := func() bool {
			_, ok := d.manager().env.Move.Progress(&move.Spec{MigrationID: mig.ID})
			return ok
		}
		pass(time.Second)
		if !shown() {
			t.Error("the copy shows no progress")
		}
		letGo()
		d.until(mig.ID, api.MigrationCopied)
		pass(time.Second)
		if shown() {
			t.Error("the copy is over, and its progress is still shown")
		}
	})
}
