// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// The NFS server hands the locks of its clients on to its own filesystem. So who opens a file by
// its path at the server meets them, and is another host to them.

// otherHostOpens has QEMU open a file for writing at the server, until what it returns is called.
func otherHostOpens(t *testing.T, h *host, file string) (letsGo func()) {
	t.Helper()
	other, err := lab.Serve(t.Context(), file, "other", filepath.Join(h.Dir, "other"+socketSuffix))
	if err != nil {
		t.Fatal(err)
	}
	letsGo = func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(letsGo)
	return letsGo
}

// otherHostMayOpen reports whether QEMU can open a file for writing at the server, where nothing
// but a lock may keep it from that.
func otherHostMayOpen(t *testing.T, file string) bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "qemu-io", "-f", "raw", "-c", "read 0 512", file).CombinedOutput()
	if err != nil && !strings.Contains(string(out), `Failed to get "write" lock`) {
		t.Fatalf("qemu-io: %v: %s", err, out)
	}
	return err == nil
}

func TestStorageAnImageOnNFSThatAnotherHostHasOpenIsNeitherMovedNorMovedTo(t *testing.T) {
	export, server := storageDevice(t, "EXPORT"), storageDevice(t, "EXPORT_AT_SERVER")
	const byAnother = "by QEMU's locks, a QEMU of this host or of another has "
	h := hostThatMayUse(t, export)
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))

	theirs := filepath.Join(export, "theirs.raw")
	if err := os.WriteFile(theirs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(theirs, volumeBytes); err != nil {
		t.Fatal(err)
	}
	empty := sumOfVolume(t, theirs)
	letsGo := otherHostOpens(t, h, filepath.Join(server, "theirs.raw"))
	e := g.refusesToMove(t, "vda", api.CodeDstInUse, "--to-path", theirs)
	mustContain(t, e.Message, byAnother+theirs)
	if sumOfVolume(t, theirs) != empty {
		t.Error("the refusal has written to what another host has")
	}
	g.assertSettledAndGoOn(t)
	letsGo()
	v := g.start(t, "vda", "--to-path", theirs)
	v.copy(t)
	v.finish(t)
	t.Log("moved there when the other host had let go")

	g.powerOff(t)
	letsGo = otherHostOpens(t, h, filepath.Join(server, "theirs.raw"))
	e = g.refusesToMove(t, "vda", api.CodeVolumeInUse, "--to-pool", "b")
	mustContain(t, e.Message, byAnother+theirs)
	letsGo()
	g.migrate(t, "vda", "--to-pool", "b")
	g.assertSettled(t)
}

func TestStorageAVolumeOnNFSOfNoInstanceThatAnotherHostHasOpenIsNeitherMovedNorDeleted(t *testing.T) {
	export, server := storageDevice(t, "EXPORT"), storageDevice(t, "EXPORT_AT_SERVER")
	h := hostThatMayUse(t, export)
	d := h.diskIn(t, export, api.FormatRaw)
	v := h.adoptVolume(t, d)
	before, sum := v.show(t), sumOfVolume(t, d.Path)
	letsGo := otherHostOpens(t, h, filepath.Join(server, filepath.Base(d.Path)))
	h.refuses(t, api.CodeVolumeInUse, "volume", "migrate", v.name, "--to-pool", "b", "--dry-run")
	e := h.refuses(t, api.CodeVolumeInUse, "volume", "migrate", v.name, "--to-pool", "b")
	mustContain(t, e.Message, "of another has "+d.Path+" open for writing")
	e = h.refuses(t, api.CodeVolumeInUse, "volume", "delete", v.name, "--yes")
	mustContain(t, e.Message, d.Path, "open for writing")
	if at := v.show(t); at.Location != before.Location || at.Status != before.Status || sumOfVolume(t, d.Path) != sum {
		t.Errorf("the refusals have changed the volume, which is %+v now and was %+v", at, before)
	}
	letsGo()
	m := get[api.Migration](t, h, "migration", "volume", "migrate", v.name, "--to-pool", "b")
	if m.State != api.MigrationCompleted || sumOfVolume(t, m.Dst.Path) != sum {
		t.Errorf("the move ended as %s (%+v), or has changed the volume", m.State, m.Dst)
	}
}

func TestStorageAGuestHasItsLocksOnNFSUntilItHasMovedAway(t *testing.T) {
	export, server := storageDevice(t, "EXPORT"), storageDevice(t, "EXPORT_AT_SERVER")
	h := hostThatMayUse(t, export)
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	v := g.start(t, "vda", "--to-path", filepath.Join(export, "locked.raw"))
	v.copy(t)
	v.finish(t)
	atServer := filepath.Join(server, "locked.raw")
	if otherHostMayOpen(t, atServer) {
		t.Error("another host may open what the guest has moved to")
	}
	g.writes(t)

	v = g.start(t, "vda", "--to-pool", "b")
	v.copy(t)
	if otherHostMayOpen(t, atServer) {
		t.Error("another host may open what the guest still reads from, in the middle of its move away")
	}
	v.finish(t)
	if !otherHostMayOpen(t, atServer) {
		t.Error("the guest has moved away and keeps its locks")
	}
	g.assertSettled(t)
}
