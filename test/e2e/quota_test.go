// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// The directory is on XFS, where a quota of QEMU's user that is used up is EDQUOT, and the
// filesystem has room.
func TestStorageAGuestWhoseOverlayIsUnderAQuotaStandsStillOrHasNoOverlay(t *testing.T) {
	dir := storageDevice(t, "QUOTA")
	limit := func(mib int) {
		t.Helper()
		set := fmt.Sprintf("limit -u bhard=%dm libvirt-qemu", mib)
		if out, err := exec.CommandContext(t.Context(), "xfs_quota", "-x", "-c", set, dir).CombinedOutput(); err != nil {
			t.Fatalf("xfs_quota %s: %v: %s", set, err, out)
		}
	}
	const plenty = 192 // and below the size of the filesystem, which would be full before
	limit(plenty)
	h := startHost(t)
	h.Flags = []string{"--overlay-dir", dir}
	h.restartDaemon(t)
	h.virsh(t, "capabilities") // as in hostThatMayUse
	mustContain(t, h.ctl(t, "doctor"), "warn  overlays: ", "the quota of user libvirt-qemu (192MiB")

	other := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	h.refuses(t, api.CodeUnsupportedDisk, "volume", "migrate", other.volumeName("vda"), "--to-pool", "b", "--method", "overlay")
	if m := other.migrate(t, "vda", "--to-pool", "b"); m.Method != "mirror" {
		t.Errorf("a disk without a policy is moved by %s", m.Method)
	}
	other.assertSettled(t)

	g := h.defineGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	g.define(t, strings.Replace(h.virsh(t, "dumpxml", g.Name, "--inactive"), "<driver name='qemu' ", "<driver name='qemu' error_policy='stop' ", 1))
	g.boot(t)
	g.adopt(t)
	v := g.start(t, "vda", "--to-pool", "b")
	if v.Method != "overlay" {
		t.Fatalf("a disk with the policy stop is moved by %s", v.Method)
	}
	g.writes(t)
	limit(1)
	if err := g.WaitState(t.Context(), "paused"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the migration says that there is no room", func() bool {
		return strings.Contains(h.ctl(t, "migration", "show", v.ID), "there is no room for its overlay")
	})
	limit(plenty)
	if err := g.WaitState(t.Context(), "running"); err != nil {
		t.Fatal(err)
	}
	g.writes(t)
	v.copy(t)
	v.finish(t)
	g.assertSettledAndGoOn(t)
	g.assertSettled(t)
}
