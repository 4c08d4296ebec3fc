// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// stopped stops the server of an export as a machine that is lost does: it closes nothing and
// answers nothing, until what it returns is called.
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

// The job of a complete writes what the guest writes to dst as well, so that each write waits for
// it.
func TestAGuestGoesOnThoughTheServerOfItsDestinationHangs(t *testing.T) {
	leftToTestE2E(t)
	for _, want := range []api.MigrationState{api.MigrationCompleted, api.MigrationCancelled} {
		t.Run(string(want), func(t *testing.T) {
			h := startHost(t)
			dst := h.servedOverTCP(t).Export
			h.listServers(t, dst)
			g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
			v := g.start(t, "vda", "--to-path", dst.URI())
			g.writes(t)
			v.copy(t)
			slow := lab.Inject(t, dst.PID(), "-P", dst.File, "-e", "trace="+fileWrites, "-e", "inject="+fileWrites+":delay_exit=300000")
			answer := g.inBackground(t, v.completeArgs()...)
			v.untilFolding(t)
			goesOn := stopped(t, dst)
			eventually(t, "it is said that the server does not answer", func() bool {
				return strings.Contains(get[api.Migration](t, h, "migration", "migration", "show", v.ID).Pacing, "does not answer")
			})
			if want == api.MigrationCancelled {
				v.cancel(t) // with a server that hangs still
				if err := <-answer; err == nil {
					t.Error("a complete that was cancelled has succeeded")
				}
				if g.state(t) == "shut off" {
					t.Log("QEMU has died of the end of its job")
					g.noteCut(t)
					g.startsAgain(t)
				}
			}
			goesOn()
			slow()
			if want == api.MigrationCompleted {
				if err := <-answer; err != nil {
					t.Error(err)
				}
			}
			h.untilState(t, v.ID, want)
			g.writes(t)
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
