// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
)

// strangerCase is what somebody does, and the point of a move at which the daemon is dead then.
type strangerCase struct {
	point, name string
	do          func(*stranger, *testing.T)
}

// A person, or a tool that owns the definitions, changes that of a guest in the middle of a move of
// its volume, while the guest runs. The daemon is dead in that moment, so that it is always the
// same one. Nothing is lost, no guest is left paused, and what the messages say to type brings the
// move to its end, without an editor.
func TestWhatAStrangerDoesToTheDefinitionOfARunningGuestIsPutRightAsTheMessagesSay(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	for _, c := range []strangerCase{
		{"migration_start.switch_to_overlay.after_started", "virsh define of another image", (*stranger).definesOther},
		{"migration_start.verify_frozen.after_started", "virsh define of before the move", (*stranger).definesSrc},
		{"migration_complete.verify_copy.after_started", "virsh undefine", (*stranger).undefines},
		{"migration_complete.verify_copy.after_started", "virsh detach-disk --config", (*stranger).detaches},
		{"migration_complete.mirror.after_started", "a block job of his own", (*stranger).beginsAJob},
		{"migration_complete.mirror.after_do", "an end of our block job", (*stranger).endsOurJob},
		{"migration_complete.name_dst.after_started", "virsh define of before the move", (*stranger).definesSrc},
		{"migration_complete.name_dst.after_started", "virsh undefine", (*stranger).undefines},
		{"migration_complete.settle.after_started", "virsh define of before the move", (*stranger).definesSrc},
		{"migration_complete.settle.after_started", "virsh undefine", (*stranger).undefines},
		{"migration_complete.settle.after_started", "virsh detach-disk --config", (*stranger).detaches},
		{"migration_cancel.pivot.after_started", "virsh define of the destination", (*stranger).definesOther},
		{"migration_cancel.settle.after_started", "virsh define of the destination", (*stranger).definesOther},
		{"migration_cancel.remove_destination.after_started", "virsh define of the destination", (*stranger).definesOther},
	} {
		if !t.Run(c.point+" "+c.name, func(t *testing.T) { g.meetsStranger(t, c) }) {
			break // nothing is certain behind it
		}
	}
	g.assertSettled(t)
}

// The same with the guest off.
func TestWhatAStrangerDoesToTheDefinitionOfAStoppedGuestIsPutRightAsTheMessagesSay(t *testing.T) {
	leftToTestE2E(t)
	g := crashGuest(t)
	g.powerOff(t)
	for _, c := range []strangerCase{
		{"migration_start.switch_to_overlay.after_started", "virsh define of another image", (*stranger).definesOther},
		{"migration_complete.verify_copy.after_started", "virsh undefine", (*stranger).undefines},
		{"migration_complete.verify_copy.after_started", "virsh define of before the move", (*stranger).definesSrc},
		{"migration_complete.fold.after_started", "virsh undefine", (*stranger).undefines},
		{"migration_complete.fold.after_started", "virsh define of before the move", (*stranger).definesSrc},
		{"migration_cancel.fold.after_started", "virsh define of before the move", (*stranger).definesSrc},
		{"migration_cancel.fold.after_started", "virsh undefine", (*stranger).undefines},
	} {
		if !t.Run(c.point+" "+c.name, func(t *testing.T) { g.meetsStranger(t, c) }) {
			break
		}
	}
	g.assertSettled(t)
}

// stranger is somebody who changes the definition of a guest, and has that of before the move.
type stranger struct {
	g          *guest
	before     string
	src, other string
	dir        string
	job        bool // he has begun a block job
}

func (p *stranger) defines(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(p.dir, "old.xml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.g.host.virsh(t, "define", file)
}

func (p *stranger) definesSrc(t *testing.T) { p.defines(t, p.before) }

func (p *stranger) definesOther(t *testing.T) {
	p.defines(t, strings.ReplaceAll(p.before, "'"+p.src+"'", "'"+p.other+"'"))
}

func (p *stranger) undefines(t *testing.T) { p.g.host.virsh(t, "undefine", p.g.Name) }

func (p *stranger) detaches(t *testing.T) {
	p.g.host.virsh(t, "detach-disk", p.g.Name, "vda", "--config")
}

func (p *stranger) beginsAJob(t *testing.T) {
	backup := filepath.Join(filepath.Dir(p.src), "backup.qcow2") // where QEMU may write
	t.Cleanup(func() { _ = os.Remove(backup) })
	p.g.host.virsh(t, "blockcopy", p.g.Name, "vda", backup, "--format", "qcow2", "--transient-job")
	p.job = true
}

// endsOurJob ends it with the guest paused: QEMU 7.2 may die of the end of such a job under a
// write.
func (p *stranger) endsOurJob(t *testing.T) {
	p.g.host.virsh(t, "suspend", p.g.Name)
	p.g.host.virsh(t, "blockjob", p.g.Name, "vda", "--abort")
	p.g.host.virsh(t, "resume", p.g.Name)
}

// meetsStranger moves the volume of the guest to the point, where the daemon dies and a stranger
// acts, and brings the move to its end.
func (g *guest) meetsStranger(t *testing.T, c strangerCase) {
	t.Helper()
	h, p, runs := g.host, point(c.point), g.state(t) == "running"
	who := &stranger{g: g, before: h.virsh(t, "dumpxml", g.Name, "--inactive", "--security-info"), src: g.volume(t, "vda").Location.Path, dir: t.TempDir()}
	who.other = who.src + ".other"
	begin := append([]string{"migration", "start", g.attachment(t, "vda").ID}, g.elsewhere(t)...)
	call := begin
	if !strings.HasPrefix(p.kind(), "migration_start") {
		v := g.start(t, "vda", g.elsewhere(t)...)
		if runs {
			g.writes(t)
		}
		v.copy(t)
		who.other = v.Dst.Path
		call = v.completeArgs()
		if strings.HasPrefix(p.kind(), "migration_cancel") {
			call = v.cancelArgs()
		}
	}
	x := &trial{host: h}
	h.restartDaemon(t, faultPoints+"="+string(p)+"=kill")
	x.hearsRegistry(t)
	r := x.ask(t, call)
	if err := h.DaemonDied(r.lost); err != nil {
		t.Fatalf("the way does not lead past %s: %v", p, err)
	}
	<-r.answered
	c.do(who, t)
	if err := os.WriteFile(filepath.Join(who.dir, g.Name+".xml"), []byte(who.before), 0o600); err != nil { // his own copy
		t.Fatal(err)
	}
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.hearsRegistry(t)
	g.bringToItsEnd(t, who, call, runs)
	if runs {
		g.assertSettledAndGoOn(t)
	} else {
		g.assertSettled(t)
	}
}

// bringToItsEnd does what the messages of the newest migration of the guest say, until it is over.
func (g *guest) bringToItsEnd(t *testing.T, who *stranger, call []string, runs bool) {
	t.Helper()
	for range 5 {
		m := g.stands(t)
		if m.Error != nil {
			t.Logf("%s: %s (%s)", m.State, m.Error.Message, m.Error.Code)
		}
		if runs && g.state(t) != "running" {
			t.Errorf("the guest is %s while the migration is %s", g.state(t), m.State)
		}
		switch {
		case m.State.Final():
			return
		case m.State == api.MigrationNeedsOperator:
			cure := m.KnownCure()
			if cure == "" {
				t.Fatalf("it names no commands: %+v", m.Error)
			}
			for _, line := range strings.Split(cure, api.CureSeparator) {
				g.types(t, line, who.dir)
			}
		case who.job: // it was refused, and his job goes on
			g.types(t, "virsh blockjob "+g.Name+" vda --abort", who.dir)
			who.job = false
			g.host.ctl(t, call...)
		default: // it was refused, and nothing waits
			g.defined(t, who.dir)
			if runs {
				g.powerOff(t)
			}
			g.types(t, "volferryctl instance repair "+g.Name, who.dir)
			if runs {
				g.boot(t)
			}
			g.host.ctl(t, call...)
		}
	}
	t.Fatal("it does not end")
}

// defined defines a guest that has no definition, or no disk in it, any more: by what runs, or else
// by the copy of its owner.
func (g *guest) defined(t *testing.T, dir string) {
	t.Helper()
	xml, err := g.host.Libvirtd.Virsh(t.Context(), "dumpxml", g.Name, "--inactive")
	file := "./" + g.Name + ".xml"
	if err == nil {
		if strings.Contains(xml, "<target dev='vda'") && strings.Contains(g.host.virsh(t, "dominfo", g.Name), "Persistent:     yes") {
			return
		}
		g.types(t, "virsh dumpxml --security-info "+g.Name+" > "+file, dir)
	}
	g.types(t, "virsh define "+file, dir)
}

// stands returns the newest migration of the guest's volume once nothing is done for it any more.
func (g *guest) stands(t *testing.T) (m api.Migration) {
	t.Helper()
	eventually(t, "nothing is done any more", func() bool {
		all := get[[]api.Migration](t, g.host, "migrations", "migration", "list", "--all", "--volume", g.volumeName("vda"))
		for _, one := range all {
			if m.StartedAt == nil || one.StartedAt.After(*m.StartedAt) || one.ID == m.ID {
				m = one
			}
		}
		return m.State.Final() || m.Stopped() || m.Error != nil && (m.State == api.MigrationStarted || m.State == api.MigrationCopied)
	})
	return m
}

// types does what a command line does, in a directory.
func (g *guest) types(t *testing.T, line, dir string) {
	t.Helper()
	t.Logf("typed: %s", line)
	words := strings.Fields(line)
	switch words[0] {
	case "virsh":
		if words[1] == "dumpxml" {
			to := filepath.Join(dir, words[len(words)-1])
			if err := os.WriteFile(to, []byte(g.host.virsh(t, words[1:len(words)-2]...)), 0o600); err != nil {
				t.Fatal(err)
			}
			return
		}
		if words[1] == "define" {
			words[2] = filepath.Join(dir, words[2])
		}
		g.host.virsh(t, words[1:]...)
	case "volferryctl":
		g.host.ctl(t, append([]string{"--progress", "none"}, words[1:]...)...)
	default:
		t.Fatalf("nobody can type %q", line)
	}
}
