// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/internal/api"
)

// The daemon dies with the guest paused for the switch and is not started for a while. A person
// resumes the guest, which writes and is shut down.
func TestAGuestThatIsResumedWhileTheDaemonIsDeadLosesNothing(t *testing.T) {
	resumedWhileTheDaemonIsDead(t, migratetest.NewWorld, (*migratetest.World).Stop)
}

// A background job has not copied its writes, and its process dies.
func TestAGuestThatIsResumedWhileTheDaemonIsDeadAndIsKilledLosesNothing(t *testing.T) {
	resumedWhileTheDaemonIsDead(t, migratetest.KeepBaseWorld, (*migratetest.World).Crash)
}

func resumedWhileTheDaemonIsDead(t *testing.T, world func(*testing.T, hv.State) *migratetest.World, end func(w *migratetest.World, instanceID string) error) {
	t.Helper()
	for _, cancel := range []bool{true, false} {
		everyRecordOn(t, world, fmt.Sprintf("cancel %v", cancel), func(t *testing.T, d *daemon, arm func(func())) {
			mig := d.copied()
			for range 20 {
				d.world.GuestWrites()
			}
			arm(func() {
				d.diesWhile(func() {
					d.world.SetStep(0) // the commit makes no progress
					must(t, d.world.ResumeByUser(testInstance))
					for range 5 {
						d.world.GuestWrites()
					}
					must(t, end(d.world, testInstance))
					d.world.SetStep(2)
				})
			})
			d.ends(mig, cancel)
		})
	}
}

// Data that a job has copied with the guest suspended is certain to be in the destination only
// after a flush.
func TestAGuestThatDiesInTheSwitchLosesNothing(t *testing.T) {
	for death, die := range map[string]func(d *daemon) error{
		"its process": func(d *daemon) error { return d.world.Crash(testInstance) },
		"its host":    func(d *daemon) error { return d.world.HostReboot() },
	} {
		for _, call := range []string{"SetConfigChain", "Pivot", "Resume"} {
			migratetest.OnLiveKinds(t, func(t *testing.T, world func(*testing.T, hv.State) *migratetest.World) {
				t.Run(death+" before "+call, func(t *testing.T) {
					inBubbleOn(t, world, hv.StateRunning, func(t *testing.T, d *daemon) {
						mig := d.copied()
						d.world.SetStep(1)
						d.world.Inject(hvtest.Fault{Call: "Suspend", Do: func() {
							for range 5 {
								d.world.GuestWrites()
							}
							d.world.Inject(hvtest.Fault{Call: call, Do: func() { must(t, die(d)) }})
						}})
						d.completes(mig)
						d.moved(d.until(mig.ID, api.MigrationCompleted))
					})
				})
			})
		}
	}
}

// A person resumes the guest while the daemon is dead, and then the host loses power: the guest's
// writes that were flushed since are in the overlay, and perhaps not in dst. So the definition does
// not prove that dst has everything.
func TestAGuestThatWasResumedInTheSwitchBeforeAPowerCutKeepsItsOverlay(t *testing.T) {
	for _, autostart := range []bool{false, true} {
		for _, resumed := range []bool{false, true} {
			t.Run(fmt.Sprintf("resumed %t autostart %t", resumed, autostart), func(t *testing.T) {
				inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
					mig := d.copied()
					d.world.Inject(hvtest.Fault{Call: "Pivot", Do: func() {
						d.diesWhile(func() {
							if resumed {
								must(t, d.world.ResumeByUser(testInstance))
								d.world.GuestWrites()
							}
							must(t, d.world.HostReboot())
							if autostart {
								must(t, d.world.Start(testInstance))
							}
						})
					}})
					d.completes(mig)
					if !resumed {
						d.moved(d.until(mig.ID, api.MigrationCompleted))
						return
					}
					d.until(mig.ID, api.MigrationNeedsOperator)
					if !d.world.Exists(overlayOf(mig)) {
						t.Error("the overlay is gone, and what was flushed to it alone")
					}
				})
			})
		}
	}
}
