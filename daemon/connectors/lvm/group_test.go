// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/connectors/internal/command"
	"github.com/volferry/volferry/daemon/internal/connector"
)

// groupOn makes a volume group on a new disk, and returns the disk. Like a guest, the command sees
// no other disks.
func groupOn(t *testing.T, name string) (disk string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	for _, args := range [][]string{{"truncate", "--size", "32M", file}, {"losetup", "--find", "--show", file}} {
		out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Skipf("SKIPPED: %v: %v: %s", args, err, out)
		}
		disk = strings.TrimSpace(string(out))
	}
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", disk).CombinedOutput(); err != nil { //nolint:noctx // the test's has ended
			t.Errorf("%v: %s", err, out)
		}
	})
	if out, err := exec.CommandContext(t.Context(), "vgcreate", "--devices", disk, name, disk).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return disk
}

// With two groups of one name the real LVM uses neither by that name.
func TestTheRealLVMHasTwoGroupsOfOneNameToldApart(t *testing.T) {
	if _, err := exec.LookPath("vgcreate"); err != nil || os.Geteuid() != 0 {
		t.Skipf("SKIPPED: needs root and LVM (%v)", err)
	}
	if err := quieten(); err != nil {
		t.Fatal(err)
	}
	const name = "volferry-test-twice"
	own, guest := groupOn(t, name), groupOn(t, name)
	l := lvm{run: command.Run}
	all, err := l.groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	uuids := map[string]string{}
	for _, g := range all {
		if g.name == name {
			uuids[strings.Join(g.devices, ",")] = g.uuid
		}
	}
	if uuids[own] == "" || uuids[guest] == "" || uuids[own] == uuids[guest] {
		t.Fatalf("the groups are %v", all)
	}
	g, warning, err := l.groupOf(t.Context(), place{name, uuids[own], "pool"})
	if err != nil || g.uuid != uuids[own] || !strings.Contains(warning, uuids[guest]+" on "+guest) {
		t.Errorf("%+v, %q, %v", g, warning, err)
	}
	if _, err := command.Run(t.Context(), "vgs", name); err == nil {
		t.Error("LVM takes the name for one of them, which proves nothing")
	}
	if out, err := l.within(t.Context(), g, "vgs", "--noheadings", "--options", "vg_uuid", name); err != nil || strings.TrimSpace(string(out)) != g.uuid {
		t.Errorf("the command sees %q, %v", out, err)
	}
	_, err = l.report(t.Context(), place{name, "another", "pool"})
	if connector.CodeOf(err) != connector.CodeUnavailable || !strings.Contains(err.Error(), uuids[guest]) {
		t.Errorf("where the disks are away: %v", err)
	}
}
