// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"slices"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/site"
)

// The deaths and hangs inside an attach and a detach, of a volume or of a root, a stop and a start.

// plugInCalls is an attach or a detach of the guest's spare volume, in this state of the guest.
func plugInCalls(state string, detaches bool) *callTrial {
	word := map[bool]string{true: "detach", false: "attach"}[detaches]
	return &callTrial{
		begin: func(c *callGuest, t *testing.T) []string {
			if p := c.bring(t, c.data, state, detaches); detaches && state == "running" {
				p.writes(t)
				p.quiesce(t)
			}
			return []string{"volume", word, c.data.name, c.Name}
		},
		ended: func(c *callGuest, t *testing.T, answer error) string {
			return c.plugEnds(t, c.data, state, []string{"volume", word, c.data.name, c.Name}, answer)
		},
	}
}

// plugEnds does what Volferry says until an attach or a detach of a volume is over, and claims that
// the guest is in the state, and has the volume or has it not, whoever is asked.
func (g *guest) plugEnds(t *testing.T, v *volume, state string, args []string, answer error) string {
	t.Helper()
	end := "went on"
	if answer != nil {
		end = "undone"
		t.Logf("the answer: %v", answer)
	}
	for tries := 0; ; tries++ {
		var failed *site.CtlError
		if !errors.As(answer, &failed) || failed.Exit != api.ExitNeedsOperator {
			break
		}
		if tries == 3 {
			t.Fatal("the way out does not lead out")
		}
		end = "by hand"
		g.destroy(t)
		if err := g.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.writes(t)
		_, answer = g.host.Ctl(t.Context(), args...)
	}
	if state == "running" && g.state(t) == "shut off" {
		if err := g.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.writes(t)
	}
	eventually(t, "no operation is open", func() bool { return len(get[[]api.Op](t, g.host, "ops", "op", "list")) == 0 })
	had := slices.IndexFunc(g.plugged, func(p *plugged) bool { return p.volume == v })
	at := v.show(t)
	switch {
	case len(at.Attachments) > 0 && had < 0:
		p := &plugged{volume: v, guest: g, mode: api.ModeRW, dev: at.Attachments[0].Device}
		g.took(t, p)
		g.endedIn(t, state, p)
	case len(at.Attachments) > 0:
		g.plugged[had].assertAttached(t)
		g.endedIn(t, state, g.plugged[had])
	case had >= 0:
		p := g.plugged[had]
		p.assertDetached(t)
		g.endedIn(t, state, p)
	default:
		if at.Status != api.VolumeAvailable {
			t.Errorf("the volume has no attachment and is %s", at.Status)
		}
		if state == "running" {
			g.assertHoldsOnlyItsDisks(t)
		}
	}
	if now := g.state(t); now != state {
		t.Fatalf("the guest is %s, want %s", now, state)
	}
	if state != "running" {
		g.assertSettled(t)
		return end
	}
	g.assertSettledAndGoOn(t)
	g.assertMonitorAgrees(t)
	return end
}

// rootInCalls is an attach or a detach of the root volume of a guest that is off.
func rootInCalls(detaches bool) *callTrial {
	return &callTrial{
		guest: func(t *testing.T) *callGuest {
			h, c := callHost(t)
			c.guest, c.root = rootGuest(t, h)
			c.atEnd = func(t *testing.T) { c.startsFromItsRoot(t, c.root) }
			return c
		},
		begin: func(c *callGuest, t *testing.T) []string { return c.bringRoot(t, c.root, detaches) },
		ended: func(c *callGuest, t *testing.T, answer error) string {
			end := c.untilDone(t, c.rootArgs(c.root, detaches), answer, func() bool {
				return c.hasRoot(t) != detaches && (len(c.root.show(t).Attachments) > 0) != detaches
			})
			var a api.Attachment
			if !detaches {
				a = c.root.show(t).Attachments[0]
			}
			c.assertRootEnded(t, c.root, detaches, a)
			return end
		},
	}
}

// powerInCalls is one of the commands that start or stop a guest, which is in one state before and
// in one after.
func powerInCalls(before, after string, words ...string) *callTrial {
	args := func(c *callGuest) []string { return append(append([]string{"instance"}, words...), c.Name) }
	return &callTrial{
		begin: func(c *callGuest, t *testing.T) []string {
			switch now := c.state(t); {
			case now == "running" && before == "shut off":
				c.powerOff(t)
			case now == "shut off" && before == "running":
				c.boot(t)
			}
			return args(c)
		},
		ended: func(c *callGuest, t *testing.T, answer error) string {
			end := c.untilDone(t, args(c), answer, func() bool { return c.state(t) == after })
			c.startsAgain(t)
			c.seesItsDisks(t)
			c.assertSettledAndGoOn(t)
			c.assertMonitorAgrees(t)
			return end
		},
	}
}
