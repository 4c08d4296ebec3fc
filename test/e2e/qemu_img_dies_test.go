// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// programsOf returns the process with a host's runs of qemu-img and qemu-storage-daemon among its
// children. Under the unit of the package, systemd starts each of them in a unit of its own.
func programsOf(t *testing.T, h *host) int {
	t.Helper()
	leftOutUnderTheUnit(t, "qemu-img is started by systemd, and strace follows the children of volferryd")
	return h.DaemonPID()
}

// qemu-img dies at its first write, and nothing else does.
func TestKillOfQemuImgInTheFold(t *testing.T) {
	leftToTestE2E(t)
	for _, end := range []struct {
		name string
		into func(*move) string
		args func(*move) []string
		do   func(*move, *testing.T)
	}{
		{"complete", func(v *move) string { return v.Dst.Path }, (*move).completeArgs, (*move).finish},
		{"cancel", func(v *move) string { return v.Src.Path }, (*move).cancelArgs, (*move).cancel},
	} {
		t.Run(end.name, func(t *testing.T) {
			h := startHost(t)
			programs := programsOf(t, h)
			g := h.stoppedGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
			v := g.start(t, "vda", "--to-pool", "b")
			g.boot(t)
			g.powerOff(t)
			v.copy(t)
			stop := lab.Inject(t, programs, "-P", end.into(v), "-e", "trace=pwrite64,pwritev,pwritev2",
				"-e", "inject=pwrite64,pwritev,pwritev2:signal=SIGKILL:when=1")
			h.mustFail(t, end.args(v)...)
			stop()
			g.boot(t) // it may be started, on its overlay
			g.powerOff(t)
			end.do(v, t)
			g.assertSettled(t)
			g.boot(t)
			g.assertSettled(t)
		})
	}
}

// qemu-storage-daemon dies in a copy from one format to another, under a guest that writes.
func TestKillOfTheServerOfAnImageInTheCopyBetweenFormats(t *testing.T) {
	leftToTestE2E(t)
	h := startHost(t)
	programs := programsOf(t, h)
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	v := g.start(t, "vda", "--to-pool", "b", "--to-format", "qcow2")
	g.writes(t)
	stop := lab.Inject(t, programs, "-P", v.Dst.Path, "-e", "trace=pwrite64,pwritev,pwritev2",
		"-e", "inject=pwrite64,pwritev,pwritev2:signal=SIGKILL:when=3")
	h.mustFail(t, v.copyArgs()...)
	stop()
	g.writes(t)
	if m := get[api.Migration](t, h, "migration", "migration", "show", v.ID); m.State != api.MigrationStarted || m.Error == nil {
		t.Errorf("the migration is %s (%+v), want started, and why its copy failed", m.State, m.Error)
	}
	v.copy(t)
	v.complete(t)
	g.assertSettled(t)
}
