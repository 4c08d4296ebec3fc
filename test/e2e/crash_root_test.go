// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/site"
)

// The deaths in the middle of a detach of a root volume, and of its attach. The
// command stays, and has to end well without another word.

// rootGuest is a guest of a host that wrote to its root volume and is off.
func rootGuest(t *testing.T, h *host) (*guest, *volume) {
	t.Helper()
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	g.quiesce(t)
	g.powerOff(t)
	return g, g.rootVolume(t)
}

// rootTrial attaches the root volume of a guest that is off, or detaches it, again
// and again.
func (g *guest) rootTrial(v *volume, detaches bool) *trial {
	return &trial{
		host: g.host, waits: true, noun: "attachment",
		begin: func(t *testing.T) []string { return g.bringRoot(t, v, detaches) },
		ended: func(t *testing.T, r *request) { g.assertRootEnded(t, v, detaches, answerOf[api.Attachment](t, r)) },
	}
}

func (g *guest) rootArgs(v *volume, detaches bool) []string {
	if detaches {
		return []string{"volume", "detach", v.name, g.Name}
	}
	return []string{"volume", "attach", v.name, g.Name, "--root"}
}

// bringRoot has the guest with its root volume, or without it, so that that can be detached or
// attached, and returns the command line of it.
func (g *guest) bringRoot(t *testing.T, v *volume, detaches bool) (args []string) {
	t.Helper()
	switch has := g.hasRoot(t); {
	case detaches && !has:
		g.attachRoot(t, v)
	case !detaches && has:
		g.detachRoot(t, v)
	}
	return g.rootArgs(v, detaches)
}

// assertRootEnded claims that the root volume is detached, or attached as the attachment says, and
// holds every write.
func (g *guest) assertRootEnded(t *testing.T, v *volume, detaches bool, a api.Attachment) {
	t.Helper()
	if detaches {
		v.isReleased(t)
		g.assertRootDetached(t, v)
		g.cannotStart(t)
	} else {
		g.assertRootAttached(t, v, a)
	}
	g.assertHolds(t, "vda", v.show(t).Location)
}

// isReleased waits until the registry knows that the volume is free. One that was away
// is told later.
func (v *volume) isReleased(t *testing.T) {
	t.Helper()
	eventually(t, "volume "+v.name+" is free", func() bool {
		now, err := site.Get[api.Volume](t.Context(), v.host.RegistryCaller(), "volume", "volume", "show", v.id)
		return err == nil && len(now.Attachments) == 0
	})
}

func (g *guest) hasRoot(t *testing.T) bool {
	t.Helper()
	return slices.ContainsFunc(g.persistentSlots(t), func(s slot) bool { return s.Target == "vda" })
}

// neverWithoutRoot claims that the instance does not start without its root, and that
// the root is nobody else's as long as it has it. The daemon is dead.
func (g *guest) neverWithoutRoot(v *volume) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		v.neverUnlocked(g)(t)
		if !g.hasRoot(t) {
			g.refusedByTheHook(t)
		}
	}
}

// startsFromItsRoot claims that the guest goes on from the volume at last.
func (g *guest) startsFromItsRoot(t *testing.T, v *volume) {
	t.Helper()
	if !g.hasRoot(t) {
		g.attachRoot(t, v)
	}
	g.boot(t)
	g.assertSettled(t)
}

// ofRoot are the points of the op that the trial is of, without those of what brings
// the guest to where it begins.
func (ps points) ofRoot(detaches bool) points {
	if detaches {
		return ps.of("attachment_detach_root")
	}
	return ps.of("attachment_attach_root")
}

func TestKillAtEveryStepOfAnAttachAndADetachOfARoot(t *testing.T) {
	leftToTestE2E(t)
	g, v := rootGuest(t, startHost(t))
	forEachPlug(t, func(t *testing.T, detaches bool) {
		x := g.rootTrial(v, detaches)
		ps := x.way(t).ofRoot(detaches)
		if !crash.Every() {
			ps = ps.where(func(p point) bool {
				return p.isAfter("do") && (p.step() == "attach_config" || p.step() == "detach_config")
			})
		}
		x.strikeAt(t, ps, g.host.daemonDies(g.neverWithoutRoot(v)))
	})
	g.startsFromItsRoot(t, v)
}

func TestKillOfTheRegistryInAnAttachAndADetachOfARoot(t *testing.T) {
	crash.LeftToTestCrash(t)
	g, v := rootGuest(t, startHost(t))
	forEachPlug(t, func(t *testing.T, detaches bool) {
		x := g.rootTrial(v, detaches)
		ps := x.registryWay(t).of("attachment")
		t.Run("alone", func(t *testing.T) { x.strikeAt(t, ps, g.host.registryDies()) })
		t.Run("with the daemon", func(t *testing.T) { x.strikeAt(t, ps, g.host.bothDie(g.neverWithoutRoot(v))) })
	})
	g.startsFromItsRoot(t, v)
}

func TestKillOfTheOthersInAnAttachAndADetachOfARoot(t *testing.T) {
	crash.LeftToTestCrash(t)
	g, v := rootGuest(t, startHost(t))
	for name, strike := range g.host.others() {
		t.Run(name, func(t *testing.T) {
			forEachPlug(t, func(t *testing.T, detaches bool) {
				x := g.rootTrial(v, detaches)
				x.strikeAt(t, x.way(t).ofRoot(detaches).where(point.atStart), g.host.othersDie(strike))
			})
		})
	}
	g.startsFromItsRoot(t, v)
}

// Everything on the host ends at once.
func TestKillOfTheHostInAnAttachAndADetachOfARoot(t *testing.T) {
	crash.LeftToTestCrash(t)
	g, v := rootGuest(t, startHost(t))
	forEachPlug(t, func(t *testing.T, detaches bool) {
		x := g.rootTrial(v, detaches)
		x.strikeAt(t, x.way(t).ofRoot(detaches).where(point.atEffect), g.host.daemonDies(func(t *testing.T) {
			g.host.reboot(t, g)
			g.neverWithoutRoot(v)(t)
		}))
	})
	g.startsFromItsRoot(t, v)
}
