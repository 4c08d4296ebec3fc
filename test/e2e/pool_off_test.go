// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// The commands are given to a shell as they are printed.
func TestACancelWhosePoolIsOffEndsByTheCommandsThatItNames(t *testing.T) {
	leftToTestE2E(t)
	h := startHost(t)
	g := h.stoppedGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	v := g.start(t, "vda", "--to-pool", "b")
	h.virsh(t, "pool-destroy", "b")
	if _, err := h.Ctl(t.Context(), v.cancelArgs()...); err == nil {
		t.Fatal("a cancel deletes the destination in a pool that is off")
	}
	m := g.stands(t)
	if m.State != api.MigrationNeedsOperator || m.KnownCure() == "" {
		t.Fatalf("the migration is %s and names no commands: %+v", m.State, m.Error)
	}
	h.types(t, t.TempDir(), strings.ReplaceAll(m.KnownCure(), api.CureSeparator, "\n"))
	h.untilState(t, v.ID, api.MigrationCancelled)
	g.boot(t)
	g.assertSettled(t)
}
