// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/test/crash"
)

// A host that goes down: daemon, registry, libvirtd and the guest die together, and libvirt starts
// the guest at the boot, before the daemon is there. What the kernel had not put on the disk is
// not lost by that (the simulations lose it), but what QEMU had not is.

func TestKillOfTheWholeHostAtEveryStepOfAMove(t *testing.T) {
	crash.LeftToTestCrash(t)
	for _, c := range asks {
		t.Run(c.name, func(t *testing.T) {
			g := crashGuest(t)
			g.host.virsh(t, "autostart", g.Name)
			x := c.trialThatStarts(g) // by libvirt, at the boot
			ps := x.way(t).of(c.kind).where(func(p point) bool { return p.isAfter("do") })
			x.strikeAt(t, ps, g.host.daemonDies(g.hostGoesDown))
			g.host.virsh(t, "autostart", "--disable", g.Name)
			g.assertSettled(t)
		})
	}
}

// be starts the guest, or has it power off, unless that is how it is.
func (g *guest) be(t *testing.T, state string) {
	t.Helper()
	switch off := g.state(t) == "shut off"; {
	case state == "running" && off:
		g.boot(t)
	case state == "stopped" && !off:
		g.powerOff(t)
	}
}

// hostGoesDown is called when the daemon has died. Nothing that runs on the host outlives it.
func (g *guest) hostGoesDown(t *testing.T) {
	t.Helper()
	h := g.host
	h.KillRegistry()
	pid := 0
	if g.state(t) != "shut off" {
		pid = g.pid(t)
	}
	if err := h.Libvirtd.Kill(); err != nil { // first, or it would note that the guest has crashed
		t.Fatal(err)
	}
	if pid != 0 {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "QEMU is gone", func() bool { return unix.Kill(pid, 0) != nil })
		g.noteCut(t)
	}
	log := h.startsLibvirtd(t)
	eventually(t, "libvirt has started the guest, or was refused", func() bool {
		return g.state(t) == "running" || strings.Contains(log(), "'"+g.Name+"'")
	})
	if err := h.StartRegistry(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}
