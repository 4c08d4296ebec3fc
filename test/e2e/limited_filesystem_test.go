// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// TestAFilesystemWithoutHardLinksIsRefusedBeforeAnythingIsMade as the place of a file, and as that
// of the overlays, by the plan and by the move in the same words.
func TestAFilesystemWithoutHardLinksIsRefusedBeforeAnythingIsMade(t *testing.T) {
	leftToTestE2E(t)
	if program := lab.LacksFS("exfat"); program != "" {
		t.Skipf("SKIPPED: this machine has no %s; install exfatprogs and exfat-fuse", program)
	}
	h := startHost(t)
	usb, err := lab.LoopFS(t.Context(), filepath.Join(h.Libvirtd.Dir, "usb"), "exfat", 200)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := usb.Close(); err != nil {
			t.Error(err)
		}
	})
	g := h.stoppedGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	name := g.volumeName("vda")
	move := []string{"volume", "migrate", name, "--to-path", filepath.Join(usb.Dir, "x.raw")}
	const lack = "(fuseblk) has no hard links, by which a new image gets its name"
	for _, args := range [][]string{append(move, "--dry-run"), move} {
		mustContain(t, h.refuses(t, api.CodeInvalidArgument, args...).Message, "cannot migrate volume "+name, usb.Dir, lack)
	}
	if made := glob(t, filepath.Join(usb.Dir, "*")); len(made) > 0 {
		t.Errorf("%v is left", made)
	}

	overlays := filepath.Join(usb.Dir, "overlays")
	h.KillDaemon()
	h.Flags = []string{"--overlay-dir", overlays}
	if err := errors.Join(os.Mkdir(overlays, 0o711), h.StartDaemon(t.Context())); err != nil {
		t.Fatal(err)
	}
	mustContain(t, h.refuses(t, api.CodeInvalidArgument, "volume", "migrate", name, "--to-pool", "b", "--dry-run").Message, overlays, lack)
	mustContain(t, h.doctorFails(t), "fail  filesystem: the overlays in "+overlays, lack)
	h.KillDaemon()
	h.Flags = nil
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.migrate(t, "vda", "--to-pool", "b")
	g.assertSettled(t)
}
