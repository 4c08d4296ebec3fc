// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"slices"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/site"
)

// The deaths of libvirtd at the system calls of an attach, of a detach, of a stop and of a
// start.

func plugInCalls(detaches bool) *callTrial {
	word := map[bool]string{true: "detach", false: "attach"}[detaches]
	return &callTrial{
		begin: func(c *callGuest, t *testing.T) []string {
			if p := c.bring(t, c.data, "running", detaches); detaches {
				p.writes(t)
				p.quiesce(t)
			}
			return []string{"volume", word, c.data.name, c.Name}
		},
		ended: func(c *callGuest, t *testing.T, answer error) string {
			return c.plugEnds(t, []string{"volume", word, c.data.name, c.Name}, answer)
		},
	}
}

// plugEnds does what Volferry says until an attach or a detach of the guest's spare volume is
// over, and claims that the guest has the volume or has it not, whoever is asked.
func (c *callGuest) plugEnds(t *testing.T, args []string, answer error) string {
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
		c.destroy(t)
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.writes(t)
		_, answer = c.host.Ctl(t.Context(), args...)
	}
	if c.state(t) == "shut off" {
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.writes(t)
	}
	eventually(t, "no operation is open", func() bool { return len(get[[]api.Op](t, c.host, "ops", "op", "list")) == 0 })
	had := slices.IndexFunc(c.plugged, func(p *plugged) bool { return p.volume == c.data })
	at := c.data.show(t)
	switch {
	case len(at.Attachments) > 0 && had < 0:
		p := &plugged{volume: c.data, guest: c.guest, mode: api.ModeRW, dev: at.Attachments[0].Device}
		c.took(t, p)
		c.endedIn(t, "running", p)
	case len(at.Attachments) > 0:
		c.plugged[had].assertAttached(t)
		c.endedIn(t, "running", c.plugged[had])
	case had >= 0:
		p := c.plugged[had]
		p.assertDetached(t)
		c.endedIn(t, "running", p)
	default:
		if at.Status != api.VolumeAvailable {
			t.Errorf("the volume has no attachment and is %s", at.Status)
		}
		c.assertHoldsOnlyItsDisks(t)
	}
	c.assertSettledAndGoOn(t)
	c.assertMonitorAgrees(t)
	return end
}

func TestKillOfLibvirtdAtEverySystemCallOfAnAttach(t *testing.T) {
	plugInCalls(false).strikeAtEach(t, inCalls(t), libvirtdDies())
}

func TestKillOfLibvirtdAtEverySystemCallOfADetach(t *testing.T) {
	plugInCalls(true).strikeAtEach(t, inCalls(t), libvirtdDies())
}

func powerInCalls(word, before, after string) *callTrial {
	return &callTrial{
		begin: func(c *callGuest, t *testing.T) []string {
			switch now := c.state(t); {
			case now == "running" && before == "shut off":
				c.powerOff(t)
			case now == "shut off" && before == "running":
				c.boot(t)
			}
			return []string{"instance", word, c.Name}
		},
		ended: func(c *callGuest, t *testing.T, answer error) string {
			end := "went on"
			if answer != nil {
				end = "asked again"
				t.Logf("the answer: %v", answer)
			}
			if now := c.state(t); now != after {
				if answer == nil {
					t.Fatalf("the guest is %s, want %s", now, after)
				}
				c.host.ctl(t, "instance", word, c.Name)
			}
			if now := c.state(t); now != after {
				t.Fatalf("the guest is %s, want %s", now, after)
			}
			c.startsAgain(t)
			c.seesItsDisks(t)
			c.assertSettledAndGoOn(t)
			c.assertMonitorAgrees(t)
			return end
		},
	}
}

func TestKillOfLibvirtdAtEverySystemCallOfAStart(t *testing.T) {
	powerInCalls("start", "shut off", "running").strikeAtEach(t, inCalls(t), libvirtdDies())
}

func TestKillOfLibvirtdAtEverySystemCallOfAStop(t *testing.T) {
	powerInCalls("stop", "running", "shut off").strikeAtEach(t, inCalls(t), libvirtdDies())
}
