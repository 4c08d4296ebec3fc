// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// The deaths in the middle of a move with all guests paused: two guests share a
// volume, are saved, and go on where it is then. The command stays, and has to end
// well without another word.

// sharers are two guests that write to a volume, each to a half of it.
type sharers struct {
	*host

	volume *volume
	both   []*plugged
	saves  string // where the memory of saved guests is
}

// startSharers starts them on a host.
func startSharers(t *testing.T, h *host) *sharers {
	t.Helper()
	if _, err := h.RegistryCaller().Ctl(t.Context(), "type", "create", "clustered", "--multiattach"); err != nil {
		t.Fatal(err)
	}
	g1, g2 := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw)), h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	s := &sharers{host: h, saves: filepath.Join(h.State(), "saves"), volume: h.adoptVolume(t, h.diskIn(t, h.poolA, api.FormatRaw), "--type", "clustered")}
	for i, g := range []*guest{g1, g2} {
		half := *s.volume
		half.disk.Part, half.disk.Parts, half.disk.Seed = uint64(i), 2, uint64(h.number())
		s.both = append(s.both, g.attach(t, &half))
		g.quiesce(t) // its own disk is not what this is about
	}
	s.writes(t)
	return s
}

// writes has both guests write to the volume, and returns when they do.
func (s *sharers) writes(t *testing.T) {
	t.Helper()
	for _, p := range s.both {
		s.begins(t, p)
	}
	s.goOnWriting(t)
}

func (s *sharers) begins(t *testing.T, p *plugged) {
	t.Helper()
	if err := p.guest.Write(p.seen, lab.Load{Interval: 10 * time.Millisecond, Depth: 2}); err != nil {
		t.Fatal(err)
	}
}

// startsIfKilled starts a guest whose process was killed, and has it write again.
func (s *sharers) startsIfKilled(t *testing.T, p *plugged) {
	t.Helper()
	if p.guest.state(t) == "shut off" {
		s.ctl(t, "instance", "start", p.guest.Name)
		p.appears(t)
		s.begins(t, p)
	}
}

// goOnWriting waits until both guests have written to the volume, from now on.
func (s *sharers) goOnWriting(t *testing.T) {
	t.Helper()
	const enough = 20
	for _, p := range s.both {
		if err := p.guest.WaitWriting(t.Context(), p.seen, enough); err != nil {
			t.Fatal(err)
		}
	}
}

// trial moves the volume to the other pool again and again.
func (s *sharers) trial() *trial {
	return &trial{
		host: s.host, want: api.MigrationCompleted, waits: true, settled: s.assertMoved,
		begin: s.moveArgs,
	}
}

func (s *sharers) moveArgs(t *testing.T) []string {
	t.Helper()
	return []string{"volume", "migrate", s.volume.name, "--to-pool", otherPool(s.volume.show(t)), "--delete-source", "--pause-all", "--yes"}
}

// assertMoved claims that both guests go on writing to the volume at its new place,
// that it holds every write, and that nothing of the move is left.
func (s *sharers) assertMoved(t *testing.T, m api.Migration) {
	t.Helper()
	now := s.volume.show(t)
	if at := s.assertOnlyOneIsLeft(t, m); now.Location.Path != at.Path || len(now.Attachments) != len(s.both) {
		t.Errorf("the migration is %+v and the volume %+v", m, now)
	}
	for _, p := range s.both {
		g := p.guest
		if state := g.state(t); state != "running" {
			t.Fatalf("guest %s is %s", g.Name, state)
		}
		p.assertAttached(t)
		if i := get[api.Instance](t, s.host, "instance", "instance", "show", g.Name); i.Locked || i.State != api.InstanceRunning {
			t.Errorf("after the move the instance is %+v", i)
		}
	}
	s.goOnWriting(t)
	if saved, err := os.ReadDir(s.saves); err != nil || len(saved) > 0 {
		t.Errorf("left in %s: %v, %v", s.saves, saved, err)
	}
	for _, p := range s.both {
		p.quiesce(t)
		p.assertHolds(t)
	}
	s.writes(t)
}

// end claims that the guests' own disks are as they were, too.
func (s *sharers) end(t *testing.T) {
	t.Helper()
	for _, p := range s.both {
		p.detach(t)
		p.guest.write(t)
		p.guest.assertSettled(t)
	}
}

// neverLoose claims of each guest that it has the volume and the registry an attachment
// of it; that it has not run since its memory was written to disk, and is not started
// from anything else as long as that is there; and that a guest that stands still does
// so under the lock of the migration. The daemon is dead.
func (s *sharers) neverLoose(t *testing.T) {
	t.Helper()
	v, err := site.Get[api.Volume](t.Context(), s.RegistryCaller(), "volume", "volume", "show", s.volume.id)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.both {
		g := p.guest
		slots := g.persistentSlots(t)
		if i := slices.IndexFunc(slots, func(l slot) bool { return l.Target == p.dev }); i < 0 || !exists(t, slots[i].Source) {
			t.Errorf("guest %s does not have the volume where it is: %+v", g.Name, slots)
		}
		if !slices.ContainsFunc(v.Attachments, func(a api.Attachment) bool { return a.InstanceID == g.UUID }) {
			t.Errorf("guest %s has the volume, and its attachments are %+v", g.Name, v.Attachments)
		}
		state := g.state(t)
		if state != "running" && v.MigrationID == "" {
			t.Errorf("guest %s is %s, and no migration holds the volume", g.Name, state)
		}
		if !s.hasMemory(t, g) {
			continue
		}
		switch state {
		case "running":
			t.Errorf("guest %s runs, and its memory is still on disk", g.Name)
		case "shut off":
			if err := g.Start(t.Context()); err == nil {
				t.Errorf("guest %s was started without its memory", g.Name)
			}
		}
	}
}

// hasMemory reports whether memory of the guest is on disk.
func (s *sharers) hasMemory(t *testing.T, g *guest) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.saves, g.UUID+".*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(files) > 0
}

// ofPauseAll are the points of the ops that a move with all guests paused consists of.
func (ps points) ofPauseAll() points {
	return ps.where(func(p point) bool {
		return slices.Contains([]string{"instance_suspend", "instance_save", "instance_restore_paused", "instance_resume", "migration_copy_saved", "migration_drop_src"}, p.kind())
	})
}

// guestsSaved: both guests are on disk, and neither has gone on, so that each can be
// restored from there once more whatever becomes of its process.
func (p point) guestsSaved() bool {
	switch p.kind() {
	case "migration_copy_saved":
		return true
	case "instance_restore_paused":
		return p.step() != "report" && p.step() != "finished"
	}
	return false
}

func TestKillAtEveryStepOfAMoveWithAllGuestsPaused(t *testing.T) {
	crash.LeftToTestCrash(t)
	s := startSharers(t, startHost(t))
	x, blow := s.trial(), s.daemonDies(s.neverLoose)
	ps := points{"instance_suspend.suspend.after_do", "instance_restore_paused.wake.after_do", "instance_resume.remove_save_image.after_do"}
	if crash.Every() {
		ps = x.way(t).ofPauseAll().where(point.atEffect)
	}
	x.strikeAt(t, ps, blow)
	s.end(t)
}

func TestKillOfTheRegistryInAMoveWithAllGuestsPaused(t *testing.T) {
	crash.LeftToTestCrash(t)
	s := startSharers(t, startHost(t))
	x := s.trial()
	ps := x.registryWay(t).of("migration")
	t.Run("alone", func(t *testing.T) { x.strikeAt(t, ps, s.registryDies()) })
	t.Run("with the daemon", func(t *testing.T) {
		x.strikeAt(t, ps.where(func(p point) bool { return p.isAfter("commit") }), s.bothDie(s.neverLoose))
	})
	s.end(t)
}

func TestKillOfTheOthersInAMoveWithAllGuestsPaused(t *testing.T) {
	crash.LeftToTestCrash(t)
	s := startSharers(t, startHost(t))
	x := s.trial()
	ps := x.way(t).ofPauseAll().where(point.atStart)
	for name, strike := range s.others() {
		t.Run(name, func(t *testing.T) { x.strikeAt(t, ps, s.othersDie(strike)) })
	}
	s.end(t)
}

// The move ends with the volume moved or not, by what its errors say, and a guest that was killed
// starts from where the volume is.
func TestKillOfAGuestInAMoveWithAllGuestsPaused(t *testing.T) {
	crash.LeftToTestCrash(t)
	s := startSharers(t, startHost(t))
	ps := s.trial().way(t).ofPauseAll().where(point.atEffect)
	x := &trial{
		host: s.host, waits: true, begin: s.moveArgs,
		ended: func(t *testing.T, r *request) { s.moveEnds(t, r.err) },
	}
	x.strikeAt(t, ps, s.othersDie(s.firstGuestDies))
	s.end(t)
}

// firstGuestDies kills the process of a guest, if it has one.
func (s *sharers) firstGuestDies(t *testing.T) {
	t.Helper()
	if _, err := s.both[0].guest.killsProcess(); err != nil && !errors.Is(err, unix.ESRCH) {
		t.Fatal(err)
	}
}

// Everything on the host ends at once, as when it loses its power, while the guests
// are on its disk.
func TestKillOfTheHostInAMoveWithAllGuestsPaused(t *testing.T) {
	crash.LeftToTestCrash(t)
	s := startSharers(t, startHost(t))
	x := s.trial()
	ps := x.way(t).ofPauseAll().where(point.guestsSaved).where(func(p point) bool { return p.isAfter("do") })
	x.strikeAt(t, ps, s.daemonDies(func(t *testing.T) {
		s.reboot(t, s.both[0].guest, s.both[1].guest)
		s.neverLoose(t)
	}))
	s.end(t)
}

// reboot ends all that the dead daemon has left of the host's programs, and has them
// begin anew.
func (h *host) reboot(t *testing.T, guests ...*guest) {
	t.Helper()
	h.KillRegistry()
	if err := h.Libvirtd.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, g := range guests {
		if exists(t, g.pidFile()) {
			g.killQEMU(t)
		}
	}
	if err := h.Libvirtd.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.StartRegistry(t.Context()); err != nil {
		t.Fatal(err)
	}
}
