// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// What a guest, or its user, may do while its volume is on the way.
func TestGuestMayEndAndBeginInTheMiddle(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	pools := []string{"b", "a"}
	next := func() string { // where the guest is not
		pools[0], pools[1] = pools[1], pools[0]
		return pools[1]
	}

	t.Run("reset", func(t *testing.T) {
		v := g.start(t, "vda", "--to-pool", next())
		if err := g.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		v.copy(t)
		g.seesItsDisks(t)
		v.finish(t)
		g.assertSettledAndGoOn(t)
	})
	t.Run("reboot", func(t *testing.T) {
		v := g.start(t, "vda", "--to-pool", next())
		if err := g.Reboot(t.Context()); err != nil {
			t.Fatal(err)
		}
		v.copy(t) // with the guest wherever it is in its boot
		v.finish(t)
		g.seesItsDisks(t)
		g.assertSettledAndGoOn(t)
	})
	t.Run("poweroff, and completed while it is off", func(t *testing.T) {
		v := g.start(t, "vda", "--to-pool", next())
		g.writes(t)
		g.powerOff(t)
		v.copy(t)
		v.finish(t)
		g.assertSettled(t)
		g.boot(t)
	})
	t.Run("destroy, and cancelled while it is off", func(t *testing.T) {
		v := g.start(t, "vda", "--to-pool", next())
		g.writes(t)
		g.destroy(t)
		v.cancel(t)
		next() // it stays where it was
		g.assertSettled(t)
		g.boot(t)
	})
	t.Run("destroy during the copy, and started again before its end", func(t *testing.T) {
		v := g.start(t, "vda", "--to-pool", next(), "--bandwidth", "1MiB/s")
		g.writes(t)
		v.copyPartly(t)
		g.destroy(t)
		g.boot(t) // on the overlay
		h.ctl(t, "migration", "set", v.ID, "--bandwidth", "0")
		v.copy(t) // joins the copy that is running
		v.finish(t)
		g.assertSettled(t)
	})
}

// libvirt restores the guest on the images that it had as it was saved: the overlay over src.
func TestAGuestThatIsSavedInAMoveIsRestoredAndTheMoveEnds(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	v := g.start(t, "vda", "--to-pool", "b")
	for _, then := range []func(*testing.T){v.copy, v.finish} {
		g.writes(t)
		h.virsh(t, "managedsave", g.Name)
		h.virsh(t, "start", g.Name)
		g.writes(t)
		then(t)
	}
	g.assertSettledAndGoOn(t)
	g.assertSettled(t)
}

func TestVolumeMigrateGoesOnWhenTheGuestIsDestroyed(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	id := idOf(t, h.ctl(t, "--no-wait", "volume", "migrate", g.volumeName("vda"), "--to-pool", "b", "--bandwidth", "2MiB/s"))
	h.untilCopying(t, id)
	g.destroy(t)
	h.ctl(t, "migration", "set", id, "--bandwidth", "0")
	h.ctl(t, "migration", "watch", id)
	if m := get[api.Migration](t, h, "migration", "migration", "show", id); m.State != api.MigrationCompleted {
		t.Errorf("the migration ended as %s: %+v", m.State, m)
	}
	g.assertSettled(t)
}
