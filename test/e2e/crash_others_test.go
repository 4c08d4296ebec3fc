// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/crash"
)

// The deaths of the others: libvirtd, the registry, and QEMU together with the
// daemon. All are left to make test-crash.

// outage is for how long something is away that did not die for good.
const outage = 500 * time.Millisecond

// others are what the daemon leans on, and how it dies and comes back.
func (h *host) others() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"libvirtd": func(t *testing.T) {
			died := time.Now()
			if err := h.Libvirtd.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := h.Libvirtd.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			h.away += time.Since(died)
		},
		"registry": func(t *testing.T) {
			h.KillRegistry()
			<-time.After(outage)
			if err := h.StartRegistry(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func TestKillOfLibvirtdAtEveryStepOfAMove(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	g.strikeIn(t, []string{"start", "copy", "complete", "cancel"}, "running", point.atStart, g.host.othersDie(g.host.others()["libvirtd"]))
	g.assertSettled(t)
}

// A package that is upgraded, or an operator, ends libvirtd in the middle of its calls, and it
// comes back.
func TestRestartOfLibvirtdAtEveryStepOfAMove(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	g.strikeIn(t, []string{"start", "copy", "complete", "cancel"}, "running", point.atStart, g.host.othersDie(func(t *testing.T) {
		began := time.Now()
		if err := g.host.Libvirtd.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.host.away += time.Since(began)
	}))
	g.assertSettled(t)
}

func TestKillOfTheRegistryAtEveryStepOfAMove(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	g.strikeIn(t, []string{"start", "copy", "complete", "cancel"}, "running", point.atStart, g.host.othersDie(g.host.others()["registry"]))
	g.assertSettled(t)
}

func TestKillOfTheOthersAtEveryStepOfAMoveOfAStoppedGuest(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	for name, kill := range g.host.others() {
		t.Run(name, func(t *testing.T) {
			x := moveOfAStoppedGuest.trial(t, g)
			x.strikeAt(t, x.way(t).where(point.atStart), g.host.othersDie(kill))
		})
	}
	g.assertSettled(t)
}

func TestKillOfTheGuestAtEveryStepOfAMove(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	g.strikeIn(t, []string{"start", "copy", "complete", "cancel"}, "shut off", point.atStart, g.host.othersDie(g.crashes))
	g.assertSettled(t)
}

// A guest that is paused powers itself off when it has been resumed.
func TestPowerOffOfTheGuestAtEveryStepOfAMove(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	g.strikeIn(t, []string{"start", "complete", "cancel"}, "shut off", point.atStart, g.host.othersDie(g.powerOff))
	g.assertSettled(t)
}

// From the pause to the resume both chains hold every write, so that it does not
// matter which one is there when the guest's process dies.
func TestKillOfTheGuestAndTheDaemonInTheSwitch(t *testing.T) {
	crash.LeftToTestCrash(t)
	g := crashGuest(t)
	g.strikeIn(t, []string{"complete", "cancel"}, "shut off", point.inPause, g.host.daemonDies(g.killQEMU))
	g.assertSettled(t)
}

// strikeIn makes moves and cancels under a guest that runs, and strikes in them at some
// points of these ops. The guest is in the state afterwards, and started again for the next
// one if that is off.
func (g *guest) strikeIn(t *testing.T, ops []string, state string, where func(point) bool, b blow) {
	t.Helper()
	for _, name := range ops {
		want, request := api.MigrationCompleted, g.moveElsewhere
		if name == "cancel" {
			want, request = api.MigrationCancelled, g.startThenCancel
		}
		t.Run(name, func(t *testing.T) {
			begin := func(t *testing.T) []string {
				g.be(t, "running")
				return request(t)
			}
			ps := g.trial(want, "running", begin).way(t).of("migration_" + name).where(where)
			g.trial(want, state, begin).strikeAt(t, ps, b)
		})
	}
}

// killQEMU kills the guest's process as the kernel does when memory runs out.
func (g *guest) killQEMU(t *testing.T) {
	t.Helper()
	if err := unix.Kill(g.pid(t), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// crashes is killQEMU where the guest may have writes that it has not flushed, and that QEMU
// has in its memory alone: what an overlay has where.
func (g *guest) crashes(t *testing.T) {
	t.Helper()
	g.killQEMU(t)
	if err := g.WaitState(t.Context(), "shut off"); err != nil {
		t.Fatal(err)
	}
	g.noteCut(t)
}

// noteCut is for a guest whose process is gone with what it had not flushed.
func (g *guest) noteCut(t *testing.T) {
	t.Helper()
	if err := g.cutNow(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// cutNow is noteCut beside a test. What the guest was told before its process ended may be heard
// after that: it counts as before.
func (g *guest) cutNow(ctx context.Context) error {
	if err := g.WaitHeard(ctx); err != nil {
		return err
	}
	g.cuts = append(g.cuts, time.Now())
	return nil
}
