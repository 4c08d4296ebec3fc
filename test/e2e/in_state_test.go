// SPDX-License-Identifier: Apache-2.0

package e2e

import "testing"

// inState is a guest that is in one state whenever a move of its disk ends.
type inState struct {
	*guest

	stays  string           // the state, in virsh's words
	middle func(*testing.T) // what it does between start and copy of a move
	atRest func(*testing.T) // claims that nothing was lost. It is in the state before and after
	end    func(*testing.T) // the end of the test
}

func (g *guest) thatRuns() *inState {
	return &inState{g, "running", g.writes, g.assertSettledAndGoOn, g.assertSettled}
}

// thatIsPaused: between two moves it runs, and writes to where it has come.
func (g *guest) thatIsPaused(t *testing.T) *inState {
	t.Helper()
	g.pause(t)
	return &inState{
		g, "paused", nothingElse,
		func(t *testing.T) {
			t.Helper()
			g.assertAtRest(t)
			g.resume(t)
			g.assertSettledAndGoOn(t)
			g.pause(t)
		},
		func(t *testing.T) {
			t.Helper()
			g.resume(t)
			g.assertSettled(t)
		},
	}
}

// thatIsStopped: in the middle of a move it runs once on the overlay, which qemu-img brings to
// where the volume comes.
func (g *guest) thatIsStopped(t *testing.T) *inState {
	t.Helper()
	g.powerOff(t)
	return &inState{
		g, "shut off",
		func(t *testing.T) {
			t.Helper()
			g.boot(t)
			g.powerOff(t)
		},
		g.assertSettled,
		func(t *testing.T) {
			t.Helper()
			g.boot(t) // where it has come in the end
			g.assertSettled(t)
		},
	}
}

// assertAt claims after a move that the disk is at the path, and that nothing was lost.
func (g *inState) assertAt(t *testing.T, path string) {
	t.Helper()
	if at := g.volume(t, "vda").Location.Path; at != path {
		t.Errorf("the volume is at %s, want %s", at, path)
	}
	if now := g.state(t); now != g.stays {
		t.Fatalf("the guest was %s, and is %s after the move", g.stays, now)
	}
	g.atRest(t)
}

// goTo runs one move of several in a row, and ends the test if it fails: the volume is not where
// the next begins.
func goTo(t *testing.T, kind string, move func(*testing.T)) {
	t.Helper()
	if !t.Run("to "+kind, move) {
		t.FailNow()
	}
}
