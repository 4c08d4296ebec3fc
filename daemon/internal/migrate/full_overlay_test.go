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
	"github.com/volferry/volferry/daemon/internal/migrate/monitor"
	"github.com/volferry/volferry/internal/api"
)

func (d *daemon) overlaysWatched() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = d.manager().Monitor.WatchOverlays(ctx)
	}()
	d.t.Cleanup(func() { cancel(); <-ended })
}

// fill leaves the overlay no space, and lets the guest write until it is paused.
func (d *daemon) fill(mig api.Migration) {
	d.t.Helper()
	must(d.t, d.world.SetFull(overlayOf(mig), true))
	d.world.Images.Free.Store(1)
	d.world.GuestWrites()
	if dom := d.instance(); dom.PauseReason != hv.PauseIOError {
		d.t.Fatalf("the guest is %s (%s), want paused by an I/O error", dom.State, dom.PauseReason)
	}
}

// makeRoom gives the overlay space again.
func (d *daemon) makeRoom(mig api.Migration, free int64) {
	d.t.Helper()
	must(d.t, d.world.SetFull(overlayOf(mig), false))
	d.world.Images.Free.Store(free)
}

func (d *daemon) instance() *hv.Domain {
	d.t.Helper()
	dom, err := d.world.Fake.Domain(context.Background(), testInstance)
	must(d.t, err)
	return dom
}

func TestAGuestWithoutRoomForItsOverlayIsToldOfAndGoesOnWhenThereIsRoom(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.overlaysWatched()
		mig := d.begin(toNewPool)
		d.fill(mig)
		synctest.Wait() // no time passes: the event is enough
		if got := d.get(mig.ID).GuestPaused; !strings.Contains(got, "no room for its overlay") {
			t.Errorf("the migration says %q, want that there is no room", got)
		}
		d.makeRoom(mig, monitor.EnoughRoom-1)
		pass(2 * monitor.OverlayWatchEvery)
		if dom := d.instance(); dom.State != hv.StatePaused {
			t.Error("the guest was resumed with too little room")
		}
		d.makeRoom(mig, monitor.EnoughRoom)
		pass(2 * monitor.OverlayPoll)
		if dom := d.instance(); dom.State != hv.StateRunning {
			t.Fatalf("the guest is %s (%s) though there is room", dom.State, dom.PauseReason)
		}
		if got := d.get(mig.ID).GuestPaused; got != "" {
			t.Errorf("the migration still says %q", got)
		}
		if got, want := d.world.Audits(), []string{"guest.io_error instance/" + testInstance, "guest.resume instance/" + testInstance}; !slices.Equal(got, want) {
			t.Errorf("the audit trail was told %q, want %q", got, want)
		}
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		d.until(mig.ID, api.MigrationCancelled)
		d.stayed()
	})
}

func TestAGuestThatFillsItsOverlayAgainIsResumedLessAndLessOften(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.overlaysWatched()
		mig := d.begin(toNewPool)
		must(t, d.world.SetFull(overlayOf(mig), true)) // a quota, whatever space the filesystem has
		d.world.GuestWrites()
		pass(time.Hour)
		resumes := 0
		for _, call := range d.world.Calls() {
			if call == "Resume" {
				resumes++
			}
		}
		// 30 s, 1, 2, 4, 8 minutes, and then each 10.
		if resumes < 5 || resumes > 11 {
			t.Errorf("the guest was resumed %d times in an hour", resumes)
		}
		if d.get(mig.ID).GuestPaused == "" {
			t.Error("the migration says nothing of the guest that stands still")
		}
	})
}

func TestAPauseThatRoomDoesNotMendIsLeftAlone(t *testing.T) {
	for name, pause := range map[string]func(*daemon){
		"by a person": func(d *daemon) { must(d.t, d.world.SuspendByUser(testInstance)) },
		"by an I/O error that nobody saw for want of room": func(d *daemon) {
			// The watch begins when there is space again, as after a restart.
			d.fill(d.open())
			d.makeRoom(d.open(), monitor.EnoughRoom)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.begin(toNewPool)
				pause(d)
				d.overlaysWatched()
				pass(4 * monitor.OverlayWatchEvery)
				if dom := d.instance(); dom.State != hv.StatePaused {
					t.Errorf("the guest is %s", dom.State)
				}
				if got := d.get(mig.ID).GuestPaused; strings.Contains(got, "by an I/O error") != strings.Contains(name, "I/O error") {
					t.Errorf("the migration says %q", got)
				}
			})
		})
	}
}

// A look would prolong the pause of a switch. An I/O error that pauses a guest has an event of its
// own.
func TestAPauseAndANewNameForADiskAreNotLookedAt(t *testing.T) {
	inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
		d.overlaysWatched()
		mig := d.begin(toNewPool)
		synctest.Wait()
		for _, c := range []struct {
			event string
			act   func() error
			looks int
		}{
			{"a pause", func() error { return d.world.SuspendByUser(testInstance) }, 0},
			{"a changed definition", func() error {
				return d.world.SetConfigChain(context.Background(), testInstance, "vda", d.instance().ConfigDisk("vda").Chain)
			}, 0},
			{"a resume", func() error { return d.world.ResumeByUser(testInstance) }, 1},
		} {
			must(t, c.act())
			before := len(d.world.Calls())
			synctest.Wait()
			if calls := d.world.Calls()[before:]; len(calls) != c.looks {
				t.Errorf("behind %s: %v, want %d looks", c.event, calls, c.looks)
			}
		}
		d.cancels(mig.ID)
		d.until(mig.ID, api.MigrationCancelled)
	})
}

func (d *daemon) open() api.Migration {
	d.t.Helper()
	open, err := d.manager().List(context.Background(), false)
	must(d.t, err)
	if len(open) != 1 {
		d.t.Fatalf("%d migrations are open", len(open))
	}
	return open[0]
}
