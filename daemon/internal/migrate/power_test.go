// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
)

// After a power failure data that a guest wrote in place and flushed is on stable storage, but
// perhaps not the time of modification. An image with an older time was not written by another
// program.
func TestAMoveGoesOnAfterAPowerCutThatTookTimesOfModification(t *testing.T) {
	for _, state := range []hv.State{hv.StateRunning, hv.StateStopped} {
		for _, cancel := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s cancel %t", state, cancel), func(t *testing.T) {
				inBubble(t, state, func(t *testing.T, d *daemon) {
					d.world.GuestWrites()
					mig := d.copied()
					must(t, d.world.PowerLoss())
					d.ends(mig, cancel)
				})
			})
		}
	}
}

// The same for the guest's writes before it is paused in its switch.
func TestASwitchIsMadeAfterAPowerCutThatTookTimesOfModification(t *testing.T) {
	migratetest.OnLiveKinds(t, func(t *testing.T, world func(*testing.T, hv.State) *migratetest.World) {
		inBubbleOn(t, world, hv.StateRunning, func(t *testing.T, d *daemon) {
			mig := d.copied()
			d.world.GuestWrites()
			d.world.Inject(hvtest.Fault{Call: "Pivot", Do: func() {
				d.diesWhile(func() { must(t, d.world.PowerLoss()) })
			}})
			d.ends(mig, false)
		})
	})
}
