// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

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
			g := h.stoppedGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
			v := g.start(t, "vda", "--to-pool", "b")
			g.boot(t)
			g.powerOff(t)
			v.copy(t)
			stop := lab.Inject(t, h.DaemonPID(), "-P", end.into(v), "-e", "trace=pwrite64,pwritev,pwritev2",
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
