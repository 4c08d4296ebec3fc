// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/site"
)

// A registry that is lost in the middle of a move, and comes back from a backup of before. The host
// has more than that knows: what it had locked, where the volume is. It shows so, nobody is given
// anything until an operator has accepted the restore, and no write is lost.

// restored is a moment in which the registry is lost.
type restored struct {
	moment
	// known: the backup has the migration, as copied. Else it is of before it.
	known bool
	// switched: the volume is at dst by then, or goes there before anybody can ask.
	switched bool
}

func TestARegistryOfBeforeTheMigrationCostsNoWrite(t *testing.T) {
	crash.LeftToTestCrash(t)
	for name, c := range map[string]restored{
		"start":                   {moment: moments["start"]},
		"copy":                    {moment: moments["copy"]},
		"complete":                {moment: moments["claim"]},
		"complete, mirrors":       {moment: moments["complete"], switched: true},
		"pivot":                   {moment: moments["pivot"], switched: true},
		"after the switch":        {moment: moments["after the switch"], switched: true},
		"after the switch, known": {moment: moments["after the switch, by calls"], switched: true, known: true},
		"cancel":                  {moment: moments["cancel"]},
		"stopped, start":          {moment: moments["stopped, start"]},
		"stopped, copy":           {moment: moments["stopped, copy"]},
		"stopped, complete":       {moment: moments["stopped, complete"], switched: true},
		"stopped, cancel":         {moment: moments["stopped, cancel"]},
	} {
		t.Run(name, func(t *testing.T) { c.test(t) })
	}
}

func (c restored) test(t *testing.T) {
	g := c.guest(t)
	h := g.host
	src := g.volume(t, "vda").Location
	var back func(*testing.T)
	if c.known {
		begin := c.begin
		c.begin = func(g *guest, t *testing.T) []string {
			args := begin(g, t)
			back = h.backUp(t)
			return args
		}
	} else {
		back = h.backUp(t)
	}
	id := c.dies(t, g)
	back(t)
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.isReadOnly(t, g)
	if m := get[api.Migration](t, h, "migration", "migration", "show", id); m.State.Final() || !exists(t, m.Src.Path) {
		t.Errorf("before anybody has accepted the restore the migration is %s, and %s there: %t", m.State, m.Src.Path, exists(t, m.Src.Path))
	}
	if c.state == "running" {
		g.writes(t)
	}
	h.acceptsRestore(t)
	m := g.stands(t)
	t.Logf("%s, guest %s: %+v", m.State, g.state(t), m.Error)
	switch {
	case c.known: // what the host did counts
		h.untilState(t, id, api.MigrationCompleted)
		if at := g.volume(t, "vda").Location.Path; at != m.Dst.Path {
			t.Errorf("the volume is at %s, want %s", at, m.Dst.Path)
		}
	case c.switched:
		g.isPutRightAtDst(t, m)
	default:
		h.untilState(t, id, api.MigrationCancelled)
		if at := g.volume(t, "vda").Location; at != src {
			t.Errorf("the volume is at %+v, want %+v", at, src)
		}
	}
	g.assertSettled(t)
}

// isPutRightAtDst claims of a guest that was switched to a destination which the registry knows
// nothing of that it is off, and all of it there; and does what the page says that makes it right.
func (g *guest) isPutRightAtDst(t *testing.T, m api.Migration) {
	t.Helper()
	h := g.host
	if state := g.state(t); state != "shut off" || m.State != api.MigrationError {
		t.Errorf("the guest is %s and the migration %s; want it off, and that over", state, m.State)
	}
	if err := g.Start(t.Context()); err == nil {
		t.Error("libvirt has started the guest on what the registry may give to others")
	}
	g.assertHolds(t, "vda", m.Dst)
	if !exists(t, m.Src.Path) {
		t.Errorf("%s is gone", m.Src.Path)
	}
	overlay := filepath.Join(h.Overlays(), m.ID+".qcow2")
	mustContain(t, m.Error.Message, m.Src.Path, m.Dst.Path, overlay)
	for _, call := range []string{"start", "repair", "forget"} { // which go by the registry's word
		mustContain(t, h.refuses(t, api.CodeChainChanged, "instance", call, g.Name).Message, m.Src.Path, m.Dst.Path, "lose-a-host.md")
	}
	g.assertHolds(t, "vda", m.Dst)
	h.ctl(t, "instance", "forget", g.Name, "--force")
	h.ctl(t, "volume", "forget", g.volumeName("vda"))
	g.adopt(t)
	if err := os.Remove(overlay); err != nil {
		t.Error(err)
	}
	eventually(t, "the guard is gone", func() bool {
		left, err := os.ReadDir(h.Guards())
		return err == nil && len(left) == 0
	})
	g.boot(t)
}

// backUp backs the registry up, tells the host more than that knows, and returns what puts the
// backup in the place of the registry.
func (h *host) backUp(t *testing.T) (putBack func(*testing.T)) {
	t.Helper()
	file, err := h.BackUpRegistry(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.ctl(t, "volume", "create", "later", "--size", "1MiB", "--pool", "a")
	h.ctl(t, "doctor") // which reports
	return func(t *testing.T) {
		t.Helper()
		if err := h.PutBackRegistry(t.Context(), file); err != nil {
			t.Fatal(err)
		}
	}
}

// isReadOnly claims that a registry that is older than what this host has shown gives nothing away.
func (h *host) isReadOnly(t *testing.T, g *guest) {
	t.Helper()
	registry := h.RegistryCaller()
	eventually(t, "the registry is read-only", func() bool {
		out, _ := registry.Ctl(t.Context(), "status")
		return strings.Contains(out, "read-only")
	})
	v, err := site.Get[api.Volume](t.Context(), registry, "volume", "volume", "show", g.volumeName("vda"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = registry.Ctl(t.Context(), "-o", "json", "attachment", "delete", v.Attachments[0].ID, "--force")
	mustHaveFailed(t, err, api.CodeRegistryUnavailable.ExitStatus(), api.CodeRegistryUnavailable)
	h.refuses(t, api.CodeRegistryUnavailable, "volume", "create", "more", "--size", "1MiB", "--pool", "a")
}

// acceptsRestore is the operator's word, and returns when the host is back.
func (h *host) acceptsRestore(t *testing.T) {
	t.Helper()
	if err := h.AcceptRestore(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the host is back", func() bool {
		host, err := site.Get[api.Host](t.Context(), h.RegistryCaller(), "host", "host", "show", "lab")
		return err == nil && host.Status == api.HostUp && !host.Behind
	})
	h.hearsRegistry(t)
}

// The backup is of the middle of a move, which has ended on the host since. The journal of the host
// is the witness of that.
func TestARegistryOfTheMiddleOfAMoveHearsHowItHasEnded(t *testing.T) {
	leftToTestE2E(t)
	for end, begin := range map[api.MigrationState]func(*guest, *testing.T) []string{
		api.MigrationCompleted: (*guest).copyThenComplete,
		api.MigrationCancelled: (*guest).startThenCancel,
	} {
		t.Run(string(end), func(t *testing.T) {
			g := crashGuest(t)
			h := g.host
			g.be(t, "running")
			at := g.volume(t, "vda").Location
			args := begin(g, t)
			id := g.volume(t, "vda").MigrationID
			back := h.backUp(t)
			h.ctl(t, args...)
			h.untilState(t, id, end)
			g.writes(t)
			back(t)
			h.isReadOnly(t, g)
			h.acceptsRestore(t)
			eventually(t, "the registry has heard of the end", func() bool {
				m, err := site.Get[api.Migration](t.Context(), h.RegistryCaller(), "migration", "migration", "show", id)
				if end == api.MigrationCompleted {
					at = m.Dst
				}
				return err == nil && m.State == end
			})
			if v := g.volume(t, "vda"); v.Location.Path != at.Path || v.MigrationID != "" {
				t.Errorf("the volume is at %s and has migration %q, want %s and none", v.Location.Path, v.MigrationID, at.Path)
			}
			if state := g.state(t); state != "running" {
				t.Errorf("the guest is %s", state)
			}
			g.writes(t)
			g.assertSettled(t)
		})
	}
}

// The volume may be somebody else's by the registry's word, so that nobody writes to it who is not
// known to have it.
func TestAVolumeThatTheRestoredRegistryHasNotAttachedIsTakenFromItsGuest(t *testing.T) {
	leftToTestE2E(t)
	g := crashGuest(t)
	h := g.host
	v := h.adoptVolume(t, h.diskIn(t, h.poolA, api.FormatRaw))
	back := h.backUp(t)
	p := g.attach(t, v)
	p.writes(t)
	back(t)
	h.isReadOnly(t, g)
	p.writes(t)
	h.acceptsRestore(t)
	if state := g.state(t); state != "shut off" {
		t.Errorf("the guest is %s, with a disk that is not its own any more", state)
	}
	if err := g.Start(t.Context()); err == nil {
		t.Error("libvirt has started it")
	}
	p.assertHoldsWhatWasAcknowledged(t)
	h.virsh(t, "detach-disk", g.Name, p.dev, "--config")
	eventually(t, "the guard is gone", func() bool {
		left, err := os.ReadDir(h.Guards())
		return err == nil && len(left) == 0
	})
	p.assertDetached(t)
	g.boot(t)
	g.assertSettled(t)
}
