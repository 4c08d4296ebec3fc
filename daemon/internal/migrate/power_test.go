// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/internal/api"
)

// What a guest has written in place, and flushed, is on stable storage after a power cut, but perhaps not the time at
// which it did. An image with an older time has not been written by anybody else.
func TestAMoveGoesOnAfterAPowerCutThatTookTimesOfModification(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
		for _, cancel := range []bool{false, true} {
			name := string(state) + " complete"
			if cancel {
				name = string(state) + " cancel"
			}
			t.Run(name, func(t *testing.T) {
				inBubble(t, state, func(t *testing.T, d *daemon) {
					d.world.GuestWrites()
					mig := d.copied()
					must(t, d.world.PowerLoss())
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
			})
		}
	}
}

// So it is with what the guest writes before it stands still in its switch.
func TestASwitchIsMadeAfterAPowerCutThatTookTimesOfModification(t *testing.T) {
	migratetest.OnLiveKinds(t, func(t *testing.T, world func(*testing.T, hv.State) *migratetest.World) {
		inBubbleOn(t, world, hv.StateRunning, func(t *testing.T, d *daemon) {
			mig := d.copied()
			d.world.GuestWrites()
			d.world.Inject(hvtest.Fault{Call: "Pivot", Do: func() {
				d.world.Disconnect()
				d.journal.SetDown(true)
				go d.RestartAfter(func() {
					d.world.Reconnect()
					d.journal.SetDown(false)
					must(t, d.world.PowerLoss())
				})
			}})
			_, _, err := d.manager().Complete(context.Background(), Call{OpID: uuid.NewString(), Subject: mig.ID, DstAttachmentID: mig.DstAttachmentID})
			must(t, err)
			d.moved(d.until(mig.ID, api.MigrationCompleted))
		})
	})
}
