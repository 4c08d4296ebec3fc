// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
)

// stuck brings a whole move to where its copy finds no room at dst.
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
		if got := d.until(mig.ID, api.MigrationCopied); got.StoppedAt != nil || got.Stopped() {
			t.Errorf("a move that was copied in a second try has stopped since %v", got.StoppedAt)
		}
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
