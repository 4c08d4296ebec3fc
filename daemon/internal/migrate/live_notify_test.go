// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/internal/api"
)

// A host that did not make dst has no op of the migration itself, only the ops of its group for
// live moves.
func TestALiveMoveOnAHostThatDidNotMakeDstLeavesNoMigrationToGoOnWith(t *testing.T) {
	liveDaemon(t, func(t *testing.T, d *daemon) {
		quiet := func(after string) {
			t.Helper()
			synctest.Wait()
			d.manager().Wake(true, true) // as after each outage of the registry
			pass(2 * replanDelay)
			synctest.Wait()
			if why := d.manager().retries.why(testMigration); why != nil {
				t.Errorf("after %s: cannot go on with a migration yet: %v", after, why)
			}
		}
		v := liveVolume()
		d.mustLive("M.track", api.LiveTrack{LiveVolume: v, Generation: 1})
		quiet("track")
		d.mustLive("M.round.0", api.LiveRound{LiveVolume: v, Generation: 1, UntilBytes: v.Src.SizeBytes})
		quiet("round 0")
		d.world.GuestWrites()
		d.mustLive("M.swap.1", api.LiveSwap{LiveVolume: v, Generation: 1, Round: 1})
		d.mustLive("M.round.1", api.LiveRound{LiveVolume: v, Generation: 1, Round: 1})
		quiet("round 1")
		must(t, d.world.Suspend(t.Context(), testInstance))
		d.world.Registry.LiveRow(api.MigrationCompleting)
		d.mustLive("M.read", api.LiveLastRead{LiveVolume: v, Generation: 1})
		d.mustLive("M.last", api.LiveLastCopy{LiveVolume: v, Generation: 1})
		quiet("the last copy")
		d.mustLive("M.untrack", api.LiveUntrack{LiveVolume: v})
		quiet("untrack")
		must(t, d.world.Resume(t.Context(), testInstance))
		if open, err := d.manager().List(t.Context(), true); err != nil || len(open) > 0 {
			t.Errorf("this host has migrations %v (%v)", open, err)
		}
	})
}
