// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
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
	eventually(t, "status counts the guest as a case for the operator", func() bool {
		st := get[api.Status](t, h, "status", "status")
		return st.NeedsOperator == 1 && st.Degraded
	})
	if _, err := h.Ctl(t.Context(), "doctor", "--quiet"); err == nil {
		t.Error("doctor does not fail for a guest on the image that its volume has left")
	}
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

// Somebody puts the definition of before a move back in the middle of the move.
func TestADefinitionThatWasPutBackInAMoveIsRepaired(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	before := h.virsh(t, "dumpxml", "--inactive", "--security-info", g.Name)
	v := g.start(t, "vda", "--to-pool", "b")
	g.writes(t)
	h.refuses(t, api.CodeStateForbidden, "instance", "repair", g.Name)
	g.quiesce(t)
	g.destroy(t)
	g.define(t, before)
	mustContain(t, h.refuses(t, api.CodeChainChanged, "instance", "start", g.Name).Message, "volferryctl instance repair "+g.Name)
	h.ctl(t, "instance", "repair", g.Name)
	h.ctl(t, "instance", "repair", g.Name) // which changes nothing
	eventually(t, "the instance may be started", func() bool {
		_, err := h.Ctl(t.Context(), "instance", "start", g.Name)
		return err == nil
	})
	g.seesItsDisks(t)
	g.write(t)
	v.copy(t)
	v.complete(t)
	g.assertSettled(t)
}

// A guest runs on what its volume has left, something is written there, and the guest is put back:
// that is said wherever an operator looks, until the old image is a volume of its own.
func TestAWrittenSourceIsSaidUntilItIsAVolume(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	put := g.migrate(t, "vda", "--to-pool", "b")
	volume, old, name := g.volumeName("vda"), put.Src.Path, g.Name+"-old"
	if said := h.ctl(t, "volume", "show", volume); !strings.Contains(said, old+", released by migration "+put.ID+"\n") {
		t.Errorf("volume show does not have %s:\n%s", old, said)
	}
	h.refuses(t, api.CodeConflict, "volume", "adopt", name, "--path", old, "--format", "raw")

	g.quiesce(t)
	g.destroy(t)
	right := h.virsh(t, "dumpxml", "--inactive", "--security-info", g.Name)
	g.define(t, strings.ReplaceAll(right, put.Dst.Path, old))
	mustContain(t, h.refuses(t, api.CodeChainChanged, "instance", "forget", g.Name).Message, old, put.Dst.Path, "--force")
	h.virsh(t, "start", g.Name)
	mustContain(t, h.doctorFails(t), "the guest of instance "+g.Name+" runs on "+old, put.Dst.Path, "virsh shutdown "+g.Name)
	eventually(t, "status warns of the source that a guest runs on", func() bool { return strings.Contains(h.ctl(t, "status"), old+" of volume "+volume) })

	h.virsh(t, "destroy", g.Name)
	f, err := os.OpenFile(old, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("written elsewhere"), 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	h.ctl(t, "instance", "repair", g.Name)
	if now := h.virsh(t, "dumpxml", "--inactive", "--security-info", g.Name); !strings.Contains(now, "'"+put.Dst.Path+"'") || strings.Contains(now, "'"+old+"'") {
		t.Fatalf("the definition is\n%s", now)
	}
	left := get[[]api.ReleasedSource](t, h, "written_sources", "instance", "start", g.Name)
	if len(left) != 1 || left[0].Location.Path != old || left[0].VolumePath != put.Dst.Path || !left[0].Written || left[0].RunBy != "" {
		t.Errorf("the start says %+v, want %s", left, old)
	}
	g.seesItsDisks(t)
	g.write(t)
	mustContain(t, h.ctl(t, "doctor"), old+", which volume "+volume+" has left by migration "+put.ID+", was written since", "volferryctl volume adopt "+volume+"-old --pool ", "virsh vol-delete --pool ")
	mustContain(t, h.ctl(t, "volume", "show", volume), old+", released by migration "+put.ID+"; written since")
	eventually(t, "instance show names the source", func() bool {
		return strings.Contains(h.ctl(t, "instance", "show", g.Name), old+", which volume "+volume)
	})

	h.KillDaemon()
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "status warns again after a restart", func() bool { return strings.Contains(h.ctl(t, "status"), old+" of volume "+volume) })
	told := 0
	for line := range strings.Lines(h.ctl(t, "events")) {
		if strings.Contains(line, "posted.volume.source_written") && strings.Contains(line, put.VolumeID) {
			told++
		}
	}
	if told != 1 {
		t.Errorf("the audit trail was told %d times", told)
	}

	refused := h.refuses(t, api.CodeConflict, "volume", "adopt", name, "--path", old, "--format", "raw")
	mustContain(t, refused.Message, volume, put.ID, put.Dst.Path, "each may have what the other lacks", "--force")
	h.ctl(t, "volume", "adopt", name, "--path", old, "--format", "raw", "--force")
	if said := h.ctl(t, "doctor"); !strings.Contains(said, "ok    released: ") {
		t.Errorf("the old image is a volume, and doctor says\n%s", said)
	}
	h.ctl(t, "volume", "forget", name)
	if err := os.Remove(old); err != nil {
		t.Fatal(err)
	}
	g.assertSettled(t)
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

// A device says nothing of when it was written: the kernel's count of its sectors does, from the
// moment on in which a mirror has left it.
func TestADeviceThatAMoveHasLeftIsSaidToBeWrittenAfterItsGuestIsOff(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	device := h.device(t, b, volumeBytes)
	g.mirror(t, "--to-path", device.Path)
	old := h.virsh(t, "dumpxml", "--inactive", "--security-info", g.Name)
	m := g.mirror(t, "--to-pool", "b")
	if r := h.released(t, m.ID); r == nil || r.Written || r.WrittenUnknown != "" {
		t.Errorf("before anybody has written there: %+v", r)
	}
	h.ctl(t, "volume", "migrate", g.volumeName("vda"), "--to-path", device.Path, "--dry-run")

	g.quiesce(t)
	g.destroy(t)
	right := h.virsh(t, "dumpxml", "--inactive", "--security-info", g.Name)
	g.define(t, old)
	h.virsh(t, "start", g.Name)
	h.virsh(t, "qemu-monitor-command", g.Name, "--hmp", `qemu-io -d /machine/peripheral/virtio-disk0/virtio-backend "write -P 7 0 4k"`)
	h.virsh(t, "destroy", g.Name)
	g.define(t, right)

	if r := h.released(t, m.ID); r == nil || !r.Written {
		t.Errorf("the guest has written there and is off: %+v", r)
	}
	mustContain(t, h.ctl(t, "doctor"), device.Path+", which volume "+g.volumeName("vda")+" has left by migration "+m.ID+", was written since")
	h.refuses(t, api.CodeUnsupportedDisk, "migration", "delete-source", m.ID, "--yes") // it is removed where it was made
	mustContain(t, h.refuses(t, api.CodeDstInUse, "volume", "migrate", g.volumeName("vda"), "--to-path", device.Path).Message, device.Path, "was written")
	g.boot(t)
	g.assertSettled(t)
}
