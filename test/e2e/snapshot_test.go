// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// An operator, or a backup tool, takes snapshots of a guest while its volume is moved. The message
// has the commands that merge them.
func TestASnapshotOverTheOverlayIsMergedAsTheMessageSays(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	v := g.start(t, "vda", "--to-pool", "b")
	g.writes(t)
	v.copy(t)
	for _, name := range []string{"nightly", "weekly"} {
		h.virsh(t, "snapshot-create-as", g.Name, name, "--disk-only", "--atomic", "--diskspec", "vda,file="+filepath.Join(a, name+".qcow2"))
		g.writes(t)
	}
	overlay := filepath.Join(h.Overlays(), v.ID+".qcow2")
	merge := []string{"blockcommit", g.Name, "vda", "--base", overlay, "--active", "--pivot", "--wait"}
	e := h.fails(t, api.ExitOpFailed, api.CodeChainChanged, v.completeArgs()...)
	mustContain(t, e.Message, "`virsh "+strings.Join(merge, " ")+"`", "`virsh snapshot-delete "+g.Name+" NAME --metadata`")
	h.virsh(t, merge...)
	for _, name := range []string{"nightly", "weekly"} {
		h.virsh(t, "snapshot-delete", g.Name, name, "--metadata")
	}
	g.writes(t)
	v.complete(t)
	g.assertSettledAndGoOn(t)
	g.assertSettled(t)
}
