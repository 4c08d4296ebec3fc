// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

var mergeCommands = regexp.MustCompile("(?s)## A snapshot over a disk that moves.*?```sh\n(.*?)```")

// part is a line of status.
func (h *host) part(t *testing.T, name string) api.Check {
	t.Helper()
	for _, p := range get[api.Status](t, h, "status", "status").Parts {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("status has no line %s", name)
	return api.Check{}
}

// showsItsSnapshot waits until the snapshot over a disk that moves is named wherever an operator
// looks, with the command.
func (g *guest) showsItsSnapshot(t *testing.T, v *move, merge string) {
	t.Helper()
	h := g.host
	began := time.Now()
	eventually(t, "status names the snapshot", func() bool { return h.part(t, "chains").Status == "fail" })
	t.Logf("status named it %s later", time.Since(began))
	mustContain(t, h.part(t, "chains").Advice, merge)
	mustContain(t, h.doctorFails(t), "chains: ", merge)
	mustContain(t, h.ctl(t, "migration", "show", v.ID), "DISK CHANGED", merge)
	mustContain(t, h.ctl(t, "migration", "list"), "DISK CHANGED", merge)
	e := h.fails(t, api.ExitRefused, api.CodeChainChanged, "volume", "which", g.volumeName("vda"))
	mustContain(t, e.Message, merge)
}

// An operator, or a backup tool, takes snapshots of a guest while its volume is moved. The message
// has the commands that merge them. With a lock manager, libvirt gives a suspended guest a lease
// that keeps it from being resumed by virsh.
func TestASnapshotOverTheOverlayIsMergedAsTheMessageSays(t *testing.T) {
	leftToTestE2E(t)
	t.Run("without leases", func(t *testing.T) { sharedHost(t).mergesSnapshots(t).assertSettled(t) })
	t.Run("with virtlockd", func(t *testing.T) {
		h := startLeasingHost(t)
		g := h.mergesSnapshots(t)
		h.assertLeases(t, g)
		g.assertSettled(t)
	})
}

// mergesSnapshots merges two snapshots of a guest as recover.md says, completes the move, and
// returns the guest.
func (h *host) mergesSnapshots(t *testing.T) *guest {
	t.Helper()
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	v := g.start(t, "vda", "--to-pool", "b")
	g.writes(t)
	v.copy(t)
	for _, name := range []string{"nightly", "weekly"} {
		image := filepath.Join(h.poolA, name+".qcow2")
		h.virsh(t, "snapshot-create-as", g.Name, name, "--disk-only", "--atomic", "--diskspec", "vda,file="+image)
		g.writes(t)
	}
	overlay := filepath.Join(h.Overlays(), v.ID+".qcow2")
	merge := "virsh " + strings.Join([]string{"blockcommit", "--base", overlay, "--active", "--pivot", "--wait", g.Name, "vda"}, " ")
	g.showsItsSnapshot(t, v, merge)
	for _, call := range [][]string{v.completeArgs(), {"migration", "cancel", v.ID}} {
		e := h.fails(t, api.ExitOpFailed, api.CodeChainChanged, call...)
		mustContain(t, e.Message, "`"+merge+"`", "`virsh snapshot-delete --metadata "+g.Name+" NAME`", "A snapshot over a disk that moves")
	}
	commands := recoverCommands(t, mergeCommands)[1]
	h.types(t, t.TempDir(), strings.NewReplacer(" G\n", " "+g.Name+"\n", " G ", " "+g.Name+" ", "OVERLAY", overlay).Replace(commands))
	for _, name := range []string{"nightly", "weekly"} {
		h.virsh(t, "snapshot-delete", g.Name, name, "--metadata")
	}
	eventually(t, "the chain is as the move has it", func() bool { return h.part(t, "chains").Status == "ok" })
	g.writes(t)
	v.complete(t)
	g.assertSettledAndGoOn(t)
	return g
}
