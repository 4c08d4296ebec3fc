// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
)

// The daemon dies with the guest paused for the switch and is not started for a
// while. A person resumes the guest, which writes and is shut down.
func TestAGuestThatIsResumedWhileTheDaemonIsDeadLosesNothing(t *testing.T) {
	for _, cancel := range []bool{true, false} {
		everyRecord(t, fmt.Sprintf("cancel %v", cancel), func(t *testing.T, d *daemon, arm func(func())) {
			mig := d.copied()
			for range 20 {
				d.world.GuestWrites()
			}
			arm(func() {
				d.world.Disconnect() // from here on it does nothing
				d.journal.SetDown(true)
				go d.RestartAfter(func() {
					d.world.Reconnect()
					d.journal.SetDown(false)
					d.world.SetStep(0) // the commit gets nowhere
					must(t, d.world.ResumeByUser(testInstance))
					for range 5 {
						d.world.GuestWrites()
					}
					must(t, d.world.Stop(testInstance))
					d.world.SetStep(2)
				})
			})
			c := Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID}
			if cancel {
				_, _, err := d.manager().Cancel(context.Background(), c)
				must(t, err)
				d.until(mig.ID, api.MigrationCancelled)
				d.stayed()
				return
			}
			_, _, err := d.manager().Complete(context.Background(), c)
			must(t, err)
			d.moved(d.until(mig.ID, api.MigrationCompleted))
		})
	}
}

// The same, and then the power of the host fails: what the guest has flushed since is
// in the overlay, and in dst perhaps not. So dst is not taken for the end because the
// definition names it.
func TestAGuestThatWasResumedInTheSwitchBeforeAPowerCutKeepsItsOverlay(t *testing.T) {
	for _, autostart := range []bool{false, true} {
		for _, resumed := range []bool{false, true} {
			t.Run(fmt.Sprintf("resumed %t autostart %t", resumed, autostart), func(t *testing.T) {
				inBubble(t, hv.StateRunning, func(t *testing.T, d *daemon) {
					mig := d.copied()
					d.world.Inject(hvtest.Fault{Call: "Pivot", Do: func() {
						d.world.Disconnect()
						d.journal.SetDown(true)
						go d.RestartAfter(func() {
							d.world.Reconnect()
							d.journal.SetDown(false)
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
					_, _, err := d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
					must(t, err)
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
