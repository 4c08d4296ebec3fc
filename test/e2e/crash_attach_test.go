// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/site"
)

// The deaths in the middle of an attach and of a detach. The command stays, and
// has to end well without another word.

// plugTrial attaches a volume to a guest, or detaches it, again and again. The
// guest is in one state before and in one after.
func (g *guest) plugTrial(v *volume, from, to string, detaches bool) *trial {
	x := &trial{host: g.host, waits: true, noun: "attachment"}
	var p *plugged
	x.begin = func(t *testing.T) []string {
		p = g.bring(t, v, from, detaches)
		if detaches {
			return []string{"volume", "detach", v.name, g.Name}
		}
		return []string{"volume", "attach", v.name, g.Name}
	}
	x.ended = func(t *testing.T, r *request) {
		<-r.answered
		if r.err != nil {
			t.Fatal(r.err)
		}
		if err := g.WaitState(t.Context(), to); err != nil {
			t.Fatal(err)
		}
		if detaches {
			// Where the registry died, an op of its own tells it of the release.
			eventually(t, "no operation is open", func() bool { return len(get[[]api.Op](t, g.host, "ops", "op", "list")) == 0 })
			p.assertDetached(t)
		} else {
			p = &plugged{volume: v, guest: g, mode: api.ModeRW, dev: "vdb"}
			g.took(t, p)
		}
		g.endedIn(t, to, p)
	}
	return x
}

// bring has the guest in the state, with the volume or without it.
func (g *guest) bring(t *testing.T, v *volume, state string, attached bool) *plugged {
	t.Helper()
	switch now := g.state(t); {
	case now == "shut off" && state == "running":
		g.boot(t)
	case now == "running" && state == "shut off":
		g.powerOff(t)
	}
	i := slices.IndexFunc(g.plugged, func(p *plugged) bool { return p.volume == v })
	switch {
	case attached && i < 0:
		return g.attach(t, v)
	case !attached && i >= 0:
		g.plugged[i].detach(t)
		return nil
	case attached:
		return g.plugged[i]
	}
	return nil
}

// endedIn claims of the volume that it holds what was written to it, and if the
// guest runs and has it, that it can be written to.
func (g *guest) endedIn(t *testing.T, state string, p *plugged) {
	t.Helper()
	if state == "running" {
		g.seesItsDisks(t)
	}
	if slices.Contains(g.plugged, p) && state == "running" {
		p.writes(t)
		p.quiesce(t)
	}
	if p.seen != "" && (state == "running" || !slices.Contains(g.plugged, p)) {
		p.assertHolds(t)
	}
}

// neverUnlocked claims that as long as a guest has the disk, by its definition or
// as it runs, the registry has an attachment of it. The daemon may be dead.
func (v *volume) neverUnlocked(g *guest) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		path := v.disk.Path
		has := func(s slot) bool { return s.Source == path }
		if !slices.ContainsFunc(v.host.slotsOf(t, g.Name), has) && !slices.ContainsFunc(g.persistentSlots(t), has) {
			return
		}
		now, err := site.Get[api.Volume](t.Context(), v.host.RegistryCaller(), "volume", "volume", "show", v.id)
		if err != nil {
			t.Fatal(err)
		}
		if len(now.Attachments) != 1 || now.Attachments[0].InstanceID != g.UUID {
			t.Errorf("guest %s has the disk, and the attachments are %+v", g.Name, now.Attachments)
		}
	}
}

// forEachPlug runs a test for attach and detach.
func forEachPlug(t *testing.T, run func(t *testing.T, detaches bool)) {
	t.Helper()
	t.Run("attach", func(t *testing.T) { run(t, false) })
	t.Run("detach", func(t *testing.T) { run(t, true) })
}

// ofPlug are the points of an attach or of a detach. The daemon notes those of the
// other as well, if it was what brought the guest to where the trial begins.
func (ps points) ofPlug(detaches bool) points {
	other := map[bool]string{true: "attachment_attach", false: "attachment_detach"}[detaches]
	return ps.of("attachment").where(func(p point) bool { return p.kind() != other })
}

func TestKillAtEveryStepOfAnAttachAndADetachUnderARunningGuest(t *testing.T) {
	leftToTestE2E(t)
	g := crashGuest(t)
	v := g.host.adoptVolume(t, g.host.diskIn(t, g.host.poolA, api.FormatRaw))
	forEachPlug(t, func(t *testing.T, detaches bool) {
		x := g.plugTrial(v, "running", "running", detaches)
		x.strikeAt(t, x.way(t).ofPlug(detaches).chosen(t), g.host.daemonDies(v.neverUnlocked(g)))
	})
	g.assertSettled(t)
}

func TestKillAtEveryStepOfAnAttachAndADetachOfAStoppedGuest(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	v := g.host.adoptVolume(t, g.host.diskIn(t, g.host.poolA, api.FormatQcow2))
	forEachPlug(t, func(t *testing.T, detaches bool) {
		x := g.plugTrial(v, "shut off", "shut off", detaches)
		x.strikeAt(t, x.way(t).ofPlug(detaches), g.host.daemonDies(v.neverUnlocked(g)))
	})
	g.assertSettled(t)
}

// The guest is started, or ends, while the daemon is dead; or all of the host ends, and libvirt
// starts the guest at the boot.
func TestKillWhileTheGuestEndsOrBeginsInAnAttachAndADetach(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	v := g.host.adoptVolume(t, g.host.diskIn(t, g.host.poolA, api.FormatRaw))
	for _, c := range []struct {
		from, to string
		along    func(*testing.T)
	}{
		{"running", "shut off", g.killQEMU},
		{"shut off", "running", func(t *testing.T) {
			if err := g.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
		{"running", "running", func(t *testing.T) {
			g.host.virsh(t, "autostart", g.Name)
			g.hostGoesDown(t)
			g.host.virsh(t, "autostart", "--disable", g.Name)
		}},
	} {
		forEachPlug(t, func(t *testing.T, detaches bool) {
			ps := g.plugTrial(v, c.from, c.from, detaches).way(t).ofPlug(detaches).where(point.atEffect)
			x := g.plugTrial(v, c.from, c.to, detaches)
			x.strikeAt(t, ps, g.host.daemonDies(func(t *testing.T) {
				c.along(t)
				v.neverUnlocked(g)(t)
			}))
		})
	}
	g.assertSettled(t)
}

// The guest is asked to power itself off where it is about to be given the disk, or asked to let go
// of it.
func TestPowerOffOfTheGuestAtEveryStepOfAnAttachAndADetach(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	v := g.host.adoptVolume(t, g.host.diskIn(t, g.host.poolA, api.FormatRaw))
	forEachPlug(t, func(t *testing.T, detaches bool) {
		ps := g.plugTrial(v, "running", "running", detaches).way(t).ofPlug(detaches).where(point.atStart)
		g.plugTrial(v, "running", "shut off", detaches).strikeAt(t, ps, g.host.othersDie(g.powerOff))
	})
	g.assertSettled(t)
}

func TestKillOfTheOthersInAnAttachAndADetach(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	v := g.host.adoptVolume(t, g.host.diskIn(t, g.host.poolA, api.FormatRaw))
	for name, strike := range g.host.others() {
		t.Run(name, func(t *testing.T) {
			forEachPlug(t, func(t *testing.T, detaches bool) {
				x := g.plugTrial(v, "running", "running", detaches)
				x.strikeAt(t, x.way(t).ofPlug(detaches).where(point.atStart), g.host.othersDie(strike))
			})
		})
	}
	g.assertSettled(t)
}
