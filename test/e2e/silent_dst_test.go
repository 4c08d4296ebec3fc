// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// stopped stops the server of an export as a machine that is lost does: it closes nothing and answers nothing,
// until what it returns is called.
func stopped(t *testing.T, e *lab.Export) (goesOn func()) {
	t.Helper()
	signal := func(s unix.Signal) {
		t.Helper()
		if err := unix.Kill(e.PID(), s); err != nil {
			t.Fatal(err)
		}
	}
	signal(unix.SIGSTOP)
	return func() { t.Helper(); signal(unix.SIGCONT) }
}

// hungBound is how long the guest may wait for such a server: two minutes, the time for an answer, and for the end
// of the job.
const hungBound = 3 * time.Minute

// The job of a complete writes what the guest writes to dst as well, so that each write waits for it.
func TestAGuestGoesOnThoughTheServerOfItsDestinationHangs(t *testing.T) {
	leftToTestE2E(t)
	for _, want := range []api.MigrationState{api.MigrationCompleted, api.MigrationCancelled} {
		t.Run(string(want), func(t *testing.T) {
			h := startHost(t)
			dst := h.servedOverTCP(t).Export
			h.StopDaemon()
			h.Flags = append(h.Flags, "--nbd-servers", dst.Server)
			if err := h.StartDaemon(t.Context()); err != nil {
				t.Fatal(err)
			}
			g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
			v := g.start(t, "vda", "--to-path", dst.URI())
			g.writes(t)
			v.copy(t)
			slow := lab.Inject(t, dst.PID(), "-P", dst.File, "-e", "trace="+fileWrites, "-e", "inject="+fileWrites+":delay_exit=300000")
			answer := g.inBackground(t, append([]string{"-o", "json", "--progress", "none"}, v.completeArgs()...)...)
			v.untilFolding(t)
			goesOn := stopped(t, dst)
			hung := time.Now()
			err := <-answer
			if g.state(t) == "shut off" {
				t.Log("QEMU has died of the end of its job")
				g.cuts = append(g.cuts, hung)
				g.startsAgain(t)
			} else {
				mustHaveFailed(t, err, api.ExitOpFailed, api.CodeIOError)
			}
			g.writes(t)
			took := time.Since(hung)
			t.Logf("the guest goes on %s after the server does not: %v", took.Round(time.Second), err)
			if took > lab.Limit(hungBound) {
				t.Errorf("the guest waited %s for the server", took)
			}
			v.assertFrozen(t)
			// Nothing begins there while it hangs.
			h.fails(t, api.ExitOpFailed, api.CodeStateForbidden, v.completeArgs()...)
			g.writes(t)
			if want == api.MigrationCancelled {
				v.cancel(t) // with a server that hangs still
			}
			goesOn()
			slow()
			if want == api.MigrationCompleted {
				v.complete(t)
			}
			g.assertSettledAndGoOn(t)
			g.assertSettled(t)
		})
	}
}

func TestACopyToAServerThatHangsGivesUpAndGoesOnLater(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	dst := h.served(t).Export
	v := g.start(t, "vda", "--to-path", dst.URI(), "--bandwidth", "4MiB/s")
	v.copyPartly(t)
	goesOn := stopped(t, dst)
	h.fails(t, api.ExitOpFailed, api.CodeIOError, v.copyArgs()...) // it joins the copy that is running
	g.writes(t)
	goesOn()
	h.ctl(t, "migration", "set", v.ID, "--bandwidth", "0")
	v.copy(t)
	v.complete(t)
	g.assertSettled(t)
}
