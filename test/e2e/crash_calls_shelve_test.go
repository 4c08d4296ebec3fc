// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// The deaths and hangs inside the ways to the shelf and back, and inside a move with all guests
// paused.

// shelfInCalls is a guest that goes to the shelf and comes back.
func shelfInCalls(t *testing.T) *callGuest {
	t.Helper()
	h, c := callHost(t)
	c.shelf = shelfGuest(t, h)
	c.guest, c.atEnd = c.shelf.guest, c.shelf.end
	return c
}

// shelveInCalls takes an instance that is off from its host to the shelf.
func shelveInCalls() *callTrial {
	return &callTrial{
		guest: shelfInCalls,
		begin: func(c *callGuest, t *testing.T) []string {
			c.shelf.bringBack(t, "shut off")
			return []string{"instance", "shelve", c.Name}
		},
		ended: func(c *callGuest, t *testing.T, answer error) string {
			end := c.untilDone(t, []string{"instance", "shelve", c.Name}, answer, func() bool {
				return c.shelf.registered(t).State == api.InstanceShelvedOffloaded
			})
			c.shelf.assertShelved(t, api.InstanceShelvedOffloaded)
			return end
		},
	}
}

// unshelveInCalls brings it back from there.
func unshelveInCalls() *callTrial {
	return &callTrial{
		guest: func(t *testing.T) *callGuest {
			t.Helper()
			c := shelfInCalls(t)
			// Its first start makes its NVRAM, by hundreds of writes that no other one repeats.
			c.shelf.bringBack(t, "running")
			return c
		},
		begin: func(c *callGuest, t *testing.T) []string {
			c.shelf.bringOff(t, false)
			return []string{"instance", "unshelve", c.Name}
		},
		ended: func(c *callGuest, t *testing.T, answer error) string {
			end := c.untilDone(t, []string{"instance", "unshelve", c.Name}, answer, func() bool {
				return !isOnShelf(c.shelf.registered(t))
			})
			if c.state(t) == "shut off" { // it is back, and was not started
				c.host.ctl(t, "instance", "start", c.Name)
			}
			c.shelf.assertBack(t)
			return end
		},
	}
}

// pauseAllInCalls is a move with all guests paused.
func pauseAllInCalls() *callTrial {
	return &callTrial{
		guest: func(t *testing.T) *callGuest {
			t.Helper()
			h, c := callHost(t)
			c.sharers = startSharers(t, h)
			c.guest, c.atEnd = c.sharers.both[0].guest, c.sharers.end
			return c
		},
		begin: func(c *callGuest, t *testing.T) []string { return c.sharers.moveArgs(t) },
		ended: func(c *callGuest, t *testing.T, answer error) string { return c.sharers.moveEnds(t, answer) },
	}
}

// moveEnds does what Volferry says until the newest move with all guests paused is over, and claims
// that both guests go on where the volume is.
func (s *sharers) moveEnds(t *testing.T, answer error) string {
	t.Helper()
	newest := func() api.Migration {
		t.Helper()
		return newestOf(get[[]api.Migration](t, s.host, "migrations", "migration", "list", "--all", "--volume", s.volume.id))
	}
	m, end := newest(), "went on"
	if answer != nil {
		t.Logf("the answer: %v", answer)
		end = "undone"
	}
	const enough = 3
	for tries := 0; !m.State.Final(); tries++ {
		if answer == nil || tries == enough {
			t.Fatalf("the migration is %s: %+v", m.State, m.Error)
		}
		if m.State == api.MigrationNeedsOperator {
			end = "by hand"
			verb, _ := m.PausedGoal()
			_, answer = s.Ctl(t.Context(), "migration", verb, m.ID)
		} else { // it goes on by itself
			_, answer = s.Ctl(t.Context(), "--progress", "none", "migration", "watch", m.ID)
		}
		m = newest()
	}
	for _, p := range s.both {
		s.startsIfKilled(t, p)
		eventually(t, "guest "+p.guest.Name+" goes on", func() bool { return p.guest.state(t) == "running" })
		p.guest.assertMonitorAgrees(t)
	}
	if m.State == api.MigrationError {
		m.State = api.MigrationCancelled // of both src is left
	}
	s.assertMoved(t, m)
	return end
}
