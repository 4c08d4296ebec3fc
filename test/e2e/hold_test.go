// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// The guest of a QEMU that may lose a write while a job begins is suspended for that. The lab's
// QEMU is none of those, so the daemon is told to suspend every guest: what is tried is that the
// guest loses nothing by that either, and for how long it stands still.
func TestAGuestThatIsSuspendedWhileAJobBeginsKeepsEveryWrite(t *testing.T) {
	leftToTestE2E(t)
	h := startHost(t)
	h.StopDaemon()
	h.Flags = []string{"--suspend-at-job-start", "always"}
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	var held, gaps, silences []time.Duration
	began := func(m api.Migration, from time.Time) {
		t.Helper()
		if m.StallMS.Job == nil {
			t.Errorf("the guest was not suspended when the job of a %s began", m.Method)
			return
		}
		held = append(held, time.Duration(*m.StallMS.Job*float64(time.Millisecond)))
		seen, during := g.History("vda"), span{from, time.Now()}
		gaps, silences = append(gaps, longestGap(seen, during)), append(silences, longestStall(seen, during))
	}
	for range 3 {
		v := g.start(t, "vda", "--to-pool", "b")
		g.writes(t)
		v.copy(t)
		g.writes(t)
		from := time.Now()
		v.complete(t)
		began(get[api.Migration](t, h, "migration", "migration", "show", v.ID), from)
		g.assertSettledAndGoOn(t)

		v = g.start(t, "vda", "--to-pool", "a")
		g.writes(t)
		from = time.Now()
		v.cancel(t)
		began(get[api.Migration](t, h, "migration", "migration", "show", v.ID), from)
		g.assertSettledAndGoOn(t)

		from = time.Now()
		g.migrate(t, "vda", "--to-pool", "a", "--to-format", "qcow2")
		began(g.migrate(t, "vda", "--to-pool", "b", "--to-format", "raw", "--method", "mirror"), from)
		g.assertSettledAndGoOn(t)
		if m := g.migrate(t, "vda", "--to-pool", "a", "--method", "mirror"); m.StallMS.Job != nil {
			t.Error("the guest was suspended for the mirror of a raw image, of which nothing can be missed")
		}
		g.assertSettledAndGoOn(t)
	}
	t.Logf("suspended for %v, at the most %v; no acknowledgement for %v at the most", held, slices.Max(held), slices.Max(gaps))
	if slices.Max(silences) > worstStall {
		t.Errorf("the guest could not write for %v, in which processors were free", slices.Max(silences))
	}
	g.assertSettled(t)
}
