// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// The moves and cancels in whose calls something dies or stands still, and how each has to end.

func moveInCalls() *callTrial {
	return &callTrial{
		spares: true,
		begin:  func(c *callGuest, t *testing.T) []string { return c.moveElsewhere(t) },
		ended:  func(c *callGuest, t *testing.T, answer error) string { return c.migrationEnds(t, answer) },
	}
}

// keepBaseInCalls is the move of a linked clone over its base images.
func keepBaseInCalls() *callTrial {
	return &callTrial{
		guest: func(t *testing.T) *callGuest {
			t.Helper()
			h, c := callHost(t)
			g, same := h.guestOnClone(t)
			c.guest = g
			c.atEnd = func(t *testing.T) {
				c.assertSettled(t)
				same()
			}
			return c
		},
		begin: func(c *callGuest, t *testing.T) []string { return c.moveOverItsBase(t) },
		ended: func(c *callGuest, t *testing.T, answer error) string { return c.migrationEnds(t, answer) },
	}
}

// mirrorInCalls is a move by mirror.
func mirrorInCalls() *callTrial {
	return &callTrial{
		begin: func(c *callGuest, t *testing.T) []string { return c.mirrorElsewhere(t) },
		ended: func(c *callGuest, t *testing.T, answer error) string { return c.migrationEnds(t, answer) },
	}
}

func cancelInCalls() *callTrial {
	return &callTrial{
		spares: true,
		begin: func(c *callGuest, t *testing.T) []string {
			v := c.start(t, "vda", c.elsewhere(t)...)
			if c.state(t) == "running" {
				c.writes(t)
			}
			return v.cancelArgs()
		},
		ended: func(c *callGuest, t *testing.T, answer error) string { return c.migrationEnds(t, answer) },
	}
}

// stopped is the trial with a guest that is off when the request is made.
func (x *callTrial) stopped() *callTrial {
	begin := x.begin
	x.ended = func(c *callGuest, t *testing.T, answer error) string {
		m, end := c.endMigration(t, answer)
		c.endedRight(t, m, c.state(t))
		return end
	}
	x.begin = func(c *callGuest, t *testing.T) []string {
		if c.state(t) != "shut off" {
			c.powerOff(t)
		}
		return begin(c, t)
	}
	return x
}

// foldInCalls is the end of a stopped guest's move, whose overlay has something to fold.
func foldInCalls(begin func(*guest, *testing.T) []string) *callTrial {
	return (&callTrial{begin: func(c *callGuest, t *testing.T) []string { return begin(c.guest, t) }}).stopped()
}

// reformatInCalls is the move of the guest's disk to an image of this format, from one of the
// other.
func reformatInCalls(to api.Format) *callTrial {
	from := map[api.Format]api.Format{api.FormatRaw: api.FormatQcow2, api.FormatQcow2: api.FormatRaw}[to]
	return &callTrial{
		begin: func(c *callGuest, t *testing.T) []string {
			if c.volume(t, "vda").Location.Format == to { // since the trial before
				c.host.ctl(t, append(c.moveElsewhere(t), "--to-format", string(from))...)
			}
			return append(c.moveElsewhere(t), "--to-format", string(to))
		},
		ended: func(c *callGuest, t *testing.T, answer error) string { return c.migrationEnds(t, answer) },
	}
}

// resizeInCalls is the growth of the guest's disk.
func resizeInCalls() *callTrial {
	size := func(c *callGuest) int { return volumeBytes + c.grown }
	return &callTrial{
		begin: func(c *callGuest, t *testing.T) []string {
			c.startsAgain(t)
			c.grown += 1 << 20
			return resizeArgs(c.volumeName("vda"), size(c))
		},
		ended: func(c *callGuest, t *testing.T, answer error) string {
			end := c.untilDone(t, resizeArgs(c.volumeName("vda"), size(c)), answer, func() bool {
				return c.volume(t, "vda").SizeBytes == int64(size(c))
			})
			if c.state(t) == "shut off" {
				c.powersOn(t)
			}
			c.sees(t, size(c))
			c.assertSize(t, size(c))
			c.assertSettledAndGoOn(t)
			c.assertMonitorAgrees(t)
			return end
		},
	}
}

// powersOn starts the guest with whatever size its disk has, and has it write.
func (c *callGuest) powersOn(t *testing.T) {
	t.Helper()
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.write(t)
}

// migrationEnds does what Volferry says until the newest migration is over, and claims that
// it is one that ended right.
func (g *guest) migrationEnds(t *testing.T, answer error) string {
	t.Helper()
	m, end := g.endMigration(t, answer)
	g.startsAgain(t)
	g.endedRight(t, m, "running")
	g.assertMonitorAgrees(t)
	return end
}

// endMigration does what Volferry says until the newest migration is over, and says in a word
// what that was.
func (g *guest) endMigration(t *testing.T, answer error) (m api.Migration, end string) {
	t.Helper()
	m, end = g.newestMigration(t), "went on"
	if answer != nil {
		end = "undone"
		t.Logf("the answer: %v", answer)
	}
	for tries := 0; !m.State.Final(); tries++ {
		if answer == nil || tries == 3 {
			t.Fatalf("the migration is %s: %+v", m.State, m.Error)
		}
		if m.State == api.MigrationNeedsOperator {
			end = "by hand"
			g.follows(t, m)
		}
		g.startsAgain(t)
		word := "cancel"
		switch {
		case m.State == api.MigrationCopied || m.State == api.MigrationCompleting:
			word = "complete"
		case m.State == api.MigrationStarted && m.Composite && tries == 0: // its copy has failed
			word, end = "copy", "copied again"
		}
		_, answer = g.host.Ctl(t.Context(), "migration", word, m.SrcAttachmentID)
		if word == "copy" && answer == nil { // and goes on to the end
			_, answer = g.host.Ctl(t.Context(), "--progress", "none", "migration", "watch", m.ID)
		}
		m = g.newestMigration(t)
	}
	if m.State == api.MigrationError {
		m.State = api.MigrationCancelled // of both src is left
	}
	return m, end
}

// startsAgain starts a guest that is off, when nothing keeps it from that.
func (g *guest) startsAgain(t *testing.T) {
	t.Helper()
	if g.state(t) != "shut off" {
		return
	}
	eventually(t, "the instance may start again", func() bool { return g.host.chainPart(t).Status == "ok" })
	g.boot(t)
}

// assertMonitorAgrees claims that QEMU, asked by itself, has each disk on the image where the
// registry has the volume, for writing, and no job.
func (g *guest) assertMonitorAgrees(t *testing.T) {
	t.Helper()
	ask := func(command string, into any) {
		t.Helper()
		text := g.host.virsh(t, "qemu-monitor-command", g.Name, `{"execute":"`+command+`"}`)
		if err := json.Unmarshal([]byte(text), &struct{ Return any }{into}); err != nil {
			t.Fatalf("%s: %v: %s", command, err, text)
		}
	}
	var blocks []struct {
		Inserted struct {
			ReadOnly     bool `json:"ro"`
			BackingDepth int  `json:"backing_file_depth"`
			Image        struct{ Filename string }
		}
	}
	var jobs []any
	ask("query-block", &blocks)
	ask("query-jobs", &jobs)
	if len(jobs) > 0 {
		t.Errorf("QEMU has jobs: %v", jobs)
	}
	depths := map[string]int{}
	for _, v := range get[[]api.Volume](t, g.host, "volumes", "volume", "list") {
		depths[v.Location.Path] = len(v.Location.Backing.Images())
	}
	slots := g.persistentSlots(t)
	if len(blocks) != len(slots) {
		t.Fatalf("QEMU has %d disks, the definition %d", len(blocks), len(slots))
	}
	for i, s := range slots {
		if in := blocks[i].Inserted; in.ReadOnly || in.BackingDepth != depths[s.Source] || in.Image.Filename != s.Source {
			t.Errorf("QEMU has disk %s as %+v, the definition on %s", s.Target, in, s.Source)
		}
	}
}
