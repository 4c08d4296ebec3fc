// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
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
			h.libvirtdAway = time.Since(died)
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

func TestKillOfLibvirtdAtEveryStepOfTheSwitch(t *testing.T) {
	leftToTestCrash(t)
	g := crashGuest(t)
	g.strikeInSwitches(t, "running", point.atStart, g.host.othersDie(g.host.others()["libvirtd"]))
	g.assertSettled(t)
}

func TestKillOfTheRegistryAtEveryStepOfTheSwitch(t *testing.T) {
	leftToTestCrash(t)
	g := crashGuest(t)
	g.strikeInSwitches(t, "running", point.atStart, g.host.othersDie(g.host.others()["registry"]))
	g.assertSettled(t)
}

// From the pause to the resume both chains hold every write, so that it does not
// matter which one is there when the guest's process dies.
func TestKillOfTheGuestAndTheDaemonInTheSwitch(t *testing.T) {
	leftToTestCrash(t)
	g := crashGuest(t)
	g.strikeInSwitches(t, "shut off", point.inPause, g.host.daemonDies(g.killQEMU))
	g.assertSettled(t)
}

// strikeInSwitches makes moves and cancels under a guest that runs, and strikes
// in them at some points of the last op. The guest is in the state afterwards,
// and started again for the next one if that is off.
func (g *guest) strikeInSwitches(t *testing.T, state string, where func(point) bool, b blow) {
	t.Helper()
	for _, c := range []struct {
		name  string
		want  api.MigrationState
		kind  string
		begin func(*testing.T) []string
	}{
		{"complete", api.MigrationCompleted, "migration_complete", g.moveElsewhere},
		{"cancel", api.MigrationCancelled, "migration_cancel", g.startThenCancel},
	} {
		t.Run(c.name, func(t *testing.T) {
			begin := func(t *testing.T) []string {
				if g.state(t) == "shut off" {
					g.boot(t)
				}
				return c.begin(t)
			}
			ps := g.trial(c.want, "running", begin).way(t).of(c.kind).where(where)
			g.trial(c.want, state, begin).strikeAt(t, ps, b)
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
