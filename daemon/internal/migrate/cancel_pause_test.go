// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/api"
)

// slowCancel begins a cancel of a running guest with a commit that makes no progress until the job
// is stepped, and returns once the job runs.
func slowCancel(t *testing.T, d *daemon) api.Migration {
	t.Helper()
	mig := d.begin(toNewPool)
	for range 40 {
		d.world.GuestWrites()
	}
	d.world.Mu.Lock()
	d.world.Quiet = true
	d.world.Mu.Unlock()
	d.world.SetStep(0)
	_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
	must(t, err)
	for !slices.Contains(d.world.Calls(), "CommitActive") {
		pass(10 * time.Millisecond)
		synctest.Wait()
	}
	return mig
}

func (d *daemon) stillRunning() {
	d.t.Helper()
	synctest.Wait()
	dom, err := d.world.Fake.Domain(context.Background(), testInstance)
	must(d.t, err)
	if dom.State != hv.StateRunning {
		d.t.Errorf("the guest is %s while its overlay is committed", dom.State)
	}
}

func (d *daemon) backOnSrc(mig api.Migration) {
	d.t.Helper()
	d.world.SetStep(2)
	d.until(mig.ID, api.MigrationCancelled)
	d.stayed()
}

func TestAnInterruptionDoesNotPauseTheGuestBeforeTheCommitHasCaughtUp(t *testing.T) {
	for name, happen := range map[string]func(d *daemon){
		"libvirt is away":   func(d *daemon) { awayFor(d, time.Second) },
		"the daemon dies":   func(d *daemon) { d.Restart() },
		"the commit is big": func(*daemon) {},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := slowCancel(t, d)
				happen(d)
				for range 12 { // slow, but it makes progress
					pass(7 * time.Second)
					d.world.Step(1)
					d.stillRunning()
				}
				d.backOnSrc(mig)
			})
		})
	}
}

func TestACommitThatGetsNowhereIsEndedByAPause(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := slowCancel(t, d)
		pass(move.CommitBound + move.CommitBound/2)
		if n := d.world.WriteLimit(testInstance, "vda"); n != blockjob.ThrottleBytesPerSecond {
			t.Errorf("the guest's writes are limited to %d, want %d", n, blockjob.ThrottleBytesPerSecond)
		}
		d.stillRunning()
		d.untilPaused()
		d.backOnSrc(mig)
	})
}

func (d *daemon) untilPaused() {
	d.t.Helper()
	for range 1000 {
		if now, err := d.world.RunState(context.Background(), testInstance); err == nil && now.State == hv.StatePaused {
			return
		}
		pass(100 * time.Millisecond)
		synctest.Wait()
	}
	d.t.Fatal("nobody pauses the guest")
}

// A guest without a limit on its writes stays ahead of its commit.
func TestACancelWhoseCommitGetsNowhereInItsPauseLetsTheGuestGoOn(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		mig := slowCancel(t, d)
		d.untilPaused()
		pass(move.DrainBound + time.Second)
		d.stillRunning()
		for d.get(mig.ID).Error == nil {
			pass(time.Second)
		}
		now := d.get(mig.ID)
		if now.State != api.MigrationCancelling || !strings.Contains(now.Error.Message, "cancel again") {
			t.Errorf("the migration is %s: %v", now.State, now.Error)
		}
		if n := d.world.WriteLimit(testInstance, "vda"); n != 0 {
			t.Errorf("the guest's writes are still limited, to %d", n)
		}
		d.world.SetStep(2)
		d.until(d.cancels(mig.ID), api.MigrationCancelled)
		d.stayed()
	})
}
