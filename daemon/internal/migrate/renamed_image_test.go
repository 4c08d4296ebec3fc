// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/migratetest"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// The daemon is dead in the pause of a switch, and the image's address is given to another image.
// Addresses are not checked in the pause. The guest continues with its image, and before anything
// is reported or removed the migration waits until the name is given back.
func TestAnAddressThatIsGivenToAnotherImageInTheSwitchIsSeenBehindIt(t *testing.T) {
	for name, c := range map[string]struct {
		world func(*testing.T, hv.State) *migratetest.World
		at    string // the step in the pause
		path  string
		back  bool // a cancel
		end   api.MigrationState
	}{
		"of the destination": {migratetest.ToAddress(migratetest.NewWorld, migratetest.OtherRBD), "name_dst", migratetest.OtherRBD.Path, false, api.MigrationCompleted},
		"of the source":      {migratetest.RBDWorld, "pivot", migratetest.RBD.Path, true, api.MigrationCancelled},
	} {
		inBubbleOn(t, c.world, hv.StateRunning, func(t *testing.T, d *daemon) {
			id := "first"
			given := func(to string) {
				d.world.Images.Mu.Lock()
				defer d.world.Images.Mu.Unlock()
				id = to
			}
			d.world.Images.Print = func(path string) string {
				if path == c.path {
					return "rbd image " + id + " at " + path
				}
				return path
			}
			mig := d.copied()
			d.when(c.at, op.EventStarted, func() {
				d.world.Disconnect()
				go d.RestartAfter(func() {
					d.world.Reconnect()
					given("other")
				})
			})
			again := d.completes
			if c.back {
				again = func(m api.Migration) string { return d.cancels(m.ID) }
			}
			again(mig)
			mig = d.until(mig.ID, api.MigrationNeedsOperator)
			if mig.Error.Code != api.CodeChainChanged || !strings.Contains(mig.Error.Message, "first") || !strings.Contains(mig.Error.Message, "other") || !strings.Contains(mig.Error.Message, "`rbd rename ") {
				t.Errorf("%s: %+v", name, mig.Error)
			}
			dom, err := d.world.Fake.Domain(t.Context(), testInstance)
			must(t, err)
			if live := dom.LiveDisk("vda"); dom.State != hv.StateRunning || live.Top().Path != c.path {
				t.Errorf("%s: the guest is %s on %s", name, dom.State, live.Top().Path)
			}
			if v := d.world.Registry.CurrentVolume(); v.MigrationID == "" || !d.world.Exists(overlayOf(mig)) || !d.world.Exists(mig.Src.Path) || !d.world.Exists(mig.Dst.Path) {
				t.Errorf("%s: something was told or removed; volume = %+v", name, v)
			}
			given("first")
			again(mig)
			mig = d.until(mig.ID, c.end)
			if c.back {
				d.stayed()
			} else {
				d.moved(mig)
			}
		})
	}
}
