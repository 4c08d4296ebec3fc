// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// backUp begins a backup of a disk, from which nobody reads: it lasts until virsh domjobabort.
func (g *guest) backUp(t *testing.T, target string) {
	t.Helper()
	dir := filepath.Join(g.host.Dir, fmt.Sprintf("backup-%d", g.host.number()))
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)); err != nil { //nolint:gosec // QEMU, of another user, makes files there
		t.Fatal(err)
	}
	xml := filepath.Join(dir, "backup.xml")
	text := fmt.Sprintf("<domainbackup mode='pull'><server transport='unix' socket='%s'/><disks><disk name='%s' type='file'><scratch file='%s'/></disk></disks></domainbackup>",
		filepath.Join(dir, "nbd"), target, filepath.Join(dir, "scratch.qcow2"))
	if err := os.WriteFile(xml, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g.host.virsh(t, "backup-begin", g.Name, xml)
}

// A backup is a job of libvirt on the disk, beside which libvirt begins no other one.
func TestAMoveGoesOnByItselfAfterABackupThatBeganInItsMiddle(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatQcow2))
	for name, end := range map[string]struct {
		args func(*move) []string
		want api.MigrationState
	}{
		"complete": {(*move).completeArgs, api.MigrationCompleted},
		"cancel":   {(*move).cancelArgs, api.MigrationCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			v := g.start(t, "vda", "--to-pool", map[bool]string{true: "b", false: "a"}[g.volume(t, "vda").Location.Pool == "a"])
			g.writes(t)
			v.copy(t)
			g.backUp(t, "vda")
			ended := g.inBackground(t, end.args(v)...)
			show := func() api.Migration { return get[api.Migration](t, h, "migration", "migration", "show", v.ID) }
			eventually(t, "it waits for the backup", func() bool { return show().Phase == "waiting for backup" })
			g.writes(t)
			if m := show(); m.Stopped() || m.Error != nil {
				t.Errorf("the migration is %s: %v", m.State, m.Error)
			}
			h.virsh(t, "domjobabort", g.Name)
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if v.Migration = show(); v.State != end.want {
				t.Fatalf("the migration is %s, want %s", v.State, end.want)
			}
			g.noteMove(t, v.Migration)
			g.writes(t)
			g.assertSettledAndGoOn(t)
		})
	}
	g.refusesBesideABackup(t)
	g.assertSettled(t)
}

func (g *guest) refusesBesideABackup(t *testing.T) {
	t.Helper()
	g.backUp(t, "vda")
	e := g.refusesToMove(t, "vda", api.CodeInstanceBusy, "--to-pool", "b")
	mustContain(t, e.Message, "`virsh domjobabort "+g.Name+"`")
	g.host.virsh(t, "domjobabort", g.Name)
}
