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

// Nothing is left behind that keeps the volume from moving on.
func TestASourceWhosePoolIsOffIsDeletedOnceThePoolIsStarted(t *testing.T) {
	leftToTestE2E(t)
	h := startHost(t)
	g := h.stoppedGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	first := g.migrate(t, "vda", "--to-pool", "b")
	left := g.migrate(t, "vda", "--to-pool", "a")
	start := "virsh pool-start b"

	h.virsh(t, "pool-destroy", "b")
	mustContain(t, h.refuses(t, api.CodeStateForbidden, "migration", "delete-source", left.ID, "--yes").Message, start)
	if r := h.released(t, left.ID); r == nil || !strings.Contains(r.Blocked, start) {
		t.Errorf("released is %+v, want one that names %s", r, start)
	}
	if ops := get[[]api.Op](t, h, "ops", "op", "list"); len(ops) != 0 {
		t.Errorf("these are left: %+v", ops)
	}
	if !exists(t, left.Src.Path) {
		t.Fatalf("%s is gone", left.Src.Path)
	}

	h.virsh(t, "pool-start", "b")
	h.ctl(t, "migration", "delete-source", left.ID, "--yes")
	if exists(t, left.Src.Path) {
		t.Errorf("%s is not deleted", left.Src.Path)
	}
	g.migrate(t, "vda", "--to-pool", "b")
	h.ctl(t, "migration", "delete-source", first.ID, "--yes")
	g.boot(t)
	g.assertSettled(t)
}
