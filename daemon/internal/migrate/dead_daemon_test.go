// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
)

// The daemon dies with the guest paused for the switch and is not started for a
// while. A person resumes the guest, which writes and is shut down.
func TestAGuestThatIsResumedWhileTheDaemonIsDeadLosesNothing(t *testing.T) {
	for _, cancel := range []bool{true, false} {
		everyRecord(t, fmt.Sprintf("cancel %v", cancel), func(t *testing.T, d *daemon, arm func(func())) {
			m := d.copied()
			for range 20 {
				d.world.guestWrites()
			}
			arm(func() {
				d.world.Disconnect() // from here on it does nothing
				d.journal.SetDown(true)
				go d.restartAfter(func() {
					d.world.Reconnect()
					d.journal.SetDown(false)
					d.world.SetStep(0) // the commit gets nowhere
					must(t, d.world.ResumeByUser(testInstance))
					for range 5 {
						d.world.guestWrites()
					}
					must(t, d.world.Stop(testInstance))
					d.world.SetStep(2)
				})
			})
			c := Call{OpID: uuid.NewString(), Subject: m.ID, DstAttachmentID: m.DstAttachmentID}
			if cancel {
				_, _, err := d.manager().Cancel(context.Background(), c)
				must(t, err)
				d.until(m.ID, api.MigrationCancelled)
				d.stayed()
				return
			}
			_, _, err := d.manager().Complete(context.Background(), c)
			must(t, err)
			d.moved(d.until(m.ID, api.MigrationCompleted))
		})
	}
}
