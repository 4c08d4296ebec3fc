// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

func (d *daemon) show(id string) api.Migration {
	d.t.Helper()
	mig, err := d.manager().Get(context.Background(), id)
	must(d.t, err)
	return mig
}

// awaitShown waits until a migration is shown so.
func (d *daemon) awaitShown(id string, is func(*api.Migration) bool) api.Migration {
	d.t.Helper()
	for range 10_000 {
		mig := d.show(id)
		if is(&mig) {
			return mig
		}
		pass(10 * time.Millisecond)
		synctest.Wait()
	}
	d.t.Fatalf("%+v", d.show(id))
	return api.Migration{}
}

func TestAGuestThatLibvirtDoesNotResumeIsShownAtOnceAndGoesOnByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := migratetest.NewWorld(t, hv.StateRunning)
		w.UseLockManager("")
		d := newDaemon(t, w)
		mig := d.begin(toNewPool)
		w.LeaseElsewhere(srcPath, true)
		_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
		must(t, err)
		shown := d.awaitShown(mig.ID, func(m *api.Migration) bool { return m.GuestNotResumed != "" })
		if !strings.Contains(shown.GuestNotResumed, "goes on by itself") {
			t.Errorf("%q does not say what ends it", shown.GuestNotResumed)
		}
		pass(10 * time.Minute)
		synctest.Wait()
		if shown = d.show(mig.ID); shown.GuestNotResumed == "" || shown.State == api.MigrationNeedsOperator {
			t.Errorf("after ten minutes it is %s: %q", shown.State, shown.GuestNotResumed)
		}
		w.LeaseElsewhere(srcPath, false)
		if shown = d.until(mig.ID, api.MigrationCancelled); shown.GuestNotResumed != "" {
			t.Errorf("the guest runs, and is shown so: %q", shown.GuestNotResumed)
		}
		d.stillRunning()
	})
}

func TestASwitchWaitsForAGuestThatIsAsleep(t *testing.T) {
	for _, why := range []hv.PauseReason{hv.PauseAsleep, hv.PauseCrashed} {
		t.Run(string(why), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := migratetest.NewWorld(t, hv.StateRunning)
				d := newDaemon(t, w)
				mig := d.begin(toNewPool)
				must(t, w.StandStill(testInstance, why))
				_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
				if err != nil && !strings.Contains(err.Error(), "asleep or has crashed") {
					t.Fatal(err)
				}
				d.awaitShown(mig.ID, func(m *api.Migration) bool { return m.Phase == "waiting for wake" })
				must(t, w.Wake(testInstance))
				d.until(mig.ID, api.MigrationCancelled)
				d.stillRunning()
			})
		})
	}
}

// The guest runs at the look, and falls asleep or crashes before it is suspended: libvirt refuses
// to suspend a guest that is asleep, and reports success for a crashed guest, without pausing it.
func TestAGuestThatFallsAsleepOrCrashesAsItIsPausedIsWaitedFor(t *testing.T) {
	for _, why := range []hv.PauseReason{hv.PauseAsleep, hv.PauseCrashed} {
		t.Run(string(why), func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.begin(toNewPool)
				stopped := false
				d.journal.AfterAppend(func(r op.Record) {
					if !stopped && r.Step == "pause" && r.Kind == op.EventNoted {
						stopped = true
						must(t, d.world.StandStill(testInstance, why))
					}
				})
				_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
				must(t, err)
				shown := d.awaitShown(mig.ID, func(m *api.Migration) bool { return m.Phase == "waiting for wake" })
				if !stopped || shown.State != api.MigrationCancelling || shown.Stopped() {
					t.Errorf("stopped %v; the migration is %s (%v)", stopped, shown.State, shown.Error)
				}
				must(t, d.world.Wake(testInstance))
				d.until(mig.ID, api.MigrationCancelled)
				d.stillRunning()
			})
		})
	}
}

// The op has noted that it pauses the guest. The guest was asleep or had crashed by then, so the op
// has not paused a guest that is found paused later.
func TestAGuestThatItsOwnerSuspendsAsItWakesStaysSuspended(t *testing.T) {
	for _, why := range []hv.PauseReason{hv.PauseAsleep, hv.PauseCrashed} {
		t.Run(string(why), func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := d.begin(toNewPool)
				stopped := false
				d.journal.AfterAppend(func(r op.Record) {
					if !stopped && r.Step == "pause" && r.Kind == op.EventNoted {
						stopped = true
						must(t, d.world.StandStill(testInstance, why))
					}
				})
				_, _, err := d.manager().Cancel(context.Background(), d.call(mig.ID))
				must(t, err)
				d.awaitShown(mig.ID, func(m *api.Migration) bool { return m.Phase == "waiting for wake" })
				must(t, d.world.Wake(testInstance))
				must(t, d.world.SuspendByUser(testInstance))
				d.until(mig.ID, api.MigrationCancelled)
				if dom, _ := d.world.Domain(t.Context(), testInstance); !stopped || dom.State != hv.StatePaused {
					t.Errorf("stopped %v; the guest, which its owner had suspended, was resumed", stopped)
				}
			})
		})
	}
}

// The lock manager was changed after the move began.
func TestAGuestIsNotSwitchedToAnImageOnWhichLibvirtWouldNotResumeIt(t *testing.T) {
	completes := func(d *daemon, mig api.Migration) error {
		_, _, err := d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
		return err
	}
	for name, refused := range map[string]func(t *testing.T, d *daemon) api.Migration{
		"overlay": func(t *testing.T, d *daemon) api.Migration {
			mig := d.begin(toNewPool)
			_, _, err := d.manager().Copy(t.Context(), d.call(mig.ID))
			must(t, err)
			mig = d.until(mig.ID, api.MigrationCopied)
			d.world.UseLockManager("libvirt locks images with sanlock")
			expect.Code(t, completes(d, mig), api.CodeUnsupportedDisk, "sanlock; stop the instance and call again")
			return mig
		},
		"mirror": func(t *testing.T, d *daemon) api.Migration {
			mig := d.mirroring(mirrorToNewPool)
			d.world.UseLockManager("libvirt locks images with sanlock")
			d.world.SetStep(2)
			pass(2 * heldUpAfter)
			shown := d.awaitShown(mig.ID, func(m *api.Migration) bool { return m.Stopped() })
			expect.Code(t, shown.Error, api.CodeUnsupportedDisk, "sanlock; move the volume with the instance stopped instead")
			return mig
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
				mig := refused(t, d)
				d.stillRunning()
				d.world.UseLockManager("")
				if name == "overlay" { // a mirror continues by itself
					must(t, completes(d, mig))
				}
				d.until(mig.ID, api.MigrationCompleted)
				d.stillRunning()
			})
		})
	}
}
