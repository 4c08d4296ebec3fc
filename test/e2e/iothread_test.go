// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// QEMU 7.2 died in about one of 30 moves of a guest whose disk an I/O thread serves.
func TestABusyGuestWithAnIOThreadLivesThroughManyMoves(t *testing.T) {
	leftToTestE2E(t)
	if !lab.IOThreads(t) {
		t.Skip("SKIPPED: there are no I/O threads")
	}
	h, a, _ := sharedPools(t)
	d := h.diskIn(t, a, api.FormatRaw)
	d.IOThread = true
	g := h.defineGuest(t, d)
	g.boot(t)
	g.adopt(t)
	process := g.pid(t)
	for i := range 16 {
		g.migrate(t, "vda", "--to-pool", []string{"b", "a"}[i%2], "--delete-source")
		g.writes(t)
	}
	if now := g.pid(t); now != process {
		t.Errorf("the guest is process %d, and was %d: it did not live", now, process)
	}
	g.assertSettled(t)
}
