// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// A move has left its source; somebody starts the guest from the definition of before, and
// Volferry says so, and touches neither image.
func TestAGuestOnTheSourceThatAMoveHasLeft(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw), h.diskIn(t, a, api.FormatRaw))
	free, put := g.migrate(t, "vda", "--to-pool", "b"), g.migrate(t, "vdb", "--to-pool", "b")
	volume := g.volumeName("vdb")

	for _, m := range []api.Migration{free, put} {
		if r := g.host.released(t, m.ID); r == nil || r.Blocked != "" || r.Location.Path != m.Src.Path || r.AllocatedBytes == 0 {
			t.Errorf("released is %+v, want %s", r, m.Src.Path)
		}
	}
	h.ctl(t, "migration", "delete-source", free.ID, "--yes")
	if exists(t, free.Src.Path) || h.released(t, free.ID) != nil {
		t.Errorf("%s is not deleted", free.Src.Path)
	}

	g.quiesce(t)
	g.destroy(t)
	right := h.virsh(t, "dumpxml", "--inactive", "--security-info", g.Name)
	g.define(t, strings.ReplaceAll(right, put.Dst.Path, put.Src.Path))
	h.virsh(t, "start", g.Name)
	said := h.fails(t, api.ExitNeedsOperator, api.CodeNeedsOperator, "volume", "which", volume)
	mustContain(t, said.Message, put.Src.Path, put.Dst.Path, "recover.md")
	h.refuses(t, api.CodeChainChanged, "volume", "detach", volume, g.Name)
	h.refuses(t, api.CodeChainChanged, "volume", "migrate", volume, "--to-pool", "a")
	h.refuses(t, api.CodeChainChanged, "volume", "resize", volume, "--size", "1GiB")
	h.refuses(t, api.CodeChainChanged, "instance", "shelve", g.Name, "--offload=false", "--force")
	h.refuses(t, api.CodeVolumeInUse, "migration", "delete-source", put.ID, "--yes")

	h.virsh(t, "destroy", g.Name)
	h.refuses(t, api.CodeVolumeInUse, "migration", "delete-source", put.ID, "--yes")
	h.refuses(t, api.CodeChainChanged, "instance", "start", g.Name)
	g.define(t, right)
	g.boot(t)
	g.assertSettled(t)
	h.ctl(t, "migration", "delete-source", put.ID, "--yes")
	if exists(t, put.Src.Path) || !exists(t, put.Dst.Path) {
		t.Errorf("%s is not deleted, or %s is", put.Src.Path, put.Dst.Path)
	}
}

// released is the source that a migration has left, nil if it is not listed.
func (h *host) released(t *testing.T, migrationID string) *api.ReleasedSource {
	t.Helper()
	all := get[[]api.ReleasedSource](t, h, "released_sources", "migration", "released")
	i := slices.IndexFunc(all, func(r api.ReleasedSource) bool { return r.MigrationID == migrationID })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// define gives the guest another persistent definition, as somebody does with virsh.
func (g *guest) define(t *testing.T, xml string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "domain.xml")
	if err := os.WriteFile(file, []byte(xml), 0o600); err != nil {
		t.Fatal(err)
	}
	g.host.virsh(t, "define", file)
}
