// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/kinds"
	"github.com/volferry/volferry/test/site"
)

// thinPool is a thin pool of the machine with storage, which ends with the test.
func thinPool(t *testing.T, name, size string) {
	t.Helper()
	lvm(t, "lvcreate", "--yes", "--type", "thin-pool", "--size", size, "--name", name, "vg")
	t.Cleanup(func() { lvm(t, "lvremove", "--yes", "vg/"+name) })
}

// configure restarts the daemon with this file, and the connectors that were built.
func (h *host) configure(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(h.Dir, "volferryd.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h.Flags = []string{"--config", file, "--connector-dir", filepath.Join(programs(t), "connectors")}
	h.KillDaemon()
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// poolOf is a pool as the daemon has it.
func poolOf(t *testing.T, h *host, name string) api.Pool {
	t.Helper()
	for _, p := range get[[]api.Pool](t, h, "pools", "pool", "list") {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("there is no pool %s", name)
	return api.Pool{}
}

// groupUUID is that of the volume group of the tests.
func groupUUID(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "vgs", "--noheadings", "--options", "vg_uuid", "vg").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestStorageTheConnectorOfLVMKeepsToTheProtocol, on a real thin pool.
func TestStorageTheConnectorOfLVMKeepsToTheProtocol(t *testing.T) {
	storageDevice(t, walked[0])
	thinPool(t, "kit-pool", "200M")
	out, err := connectorTest(t, filepath.Join(programs(t), "connectors", "lvm"), "vg=vg", "vg_uuid="+groupUUID(t), "thin_pool=kit-pool")
	t.Log(out)
	if err != nil {
		t.Fatal(err)
	}
	left, err := exec.CommandContext(t.Context(), "lvs", "--noheadings", "-o", "lv_name", "vg").Output()
	if err != nil || strings.Contains(string(left), "volferry-test") {
		t.Errorf("it has left something: %s, %v", left, err)
	}
}

// TestStorageAGroupThatAGuestHasMadeIsNotUsed, though it has the name of the pool's group.
func TestStorageAGroupThatAGuestHasMadeIsNotUsed(t *testing.T) {
	storageDevice(t, walked[0])
	thinPool(t, "own-pool", "100M")
	h := startHost(t)
	h.configure(t, "[connector_pools]\nthin = { connector = \"lvm\", vg = \"vg\", vg_uuid = \""+groupUUID(t)+"\", thin_pool = \"own-pool\" }\n")
	file := filepath.Join(t.TempDir(), "lun")
	lvm(t, "truncate", "--size", "64M", file)
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	lun := strings.TrimSpace(string(out))
	t.Cleanup(func() { lvm(t, "losetup", "--detach", lun) })
	lvm(t, "vgcreate", "--devices", lun, "vg", lun)
	t.Cleanup(func() { lvm(t, "vgremove", "--devices", lun, "--yes", "vg") })
	h.ctl(t, "volume", "create", "db", "--size", "32MiB", "--pool", "thin")
	h.ctl(t, "volume", "delete", "db", "--yes")
	for _, c := range h.checks(t) {
		if c.Name == "pool thin" && c.Status == "warn" && strings.Contains(c.Message, lun) {
			return
		}
	}
	t.Error("doctor says nothing of the other group")
}

// TestStorageAThinPoolIsAPoolAsThePageSays follows the page where it is about a thin pool, with
// names and sizes that the machine has room for. Targets have tests of their own, in
// target_test.go.
func TestStorageAThinPoolIsAPoolAsThePageSays(t *testing.T) {
	h := storageHost(t)
	const page = "docs/how-to/use-a-connector.md"
	blocks, err := site.ReadPage(page)
	if err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("M3Uv6R-Gnhy-mmFU-ApVl-YWPJ-yS3a-dRnKhR", groupUUID(t), "vg1/pool", "vg/page-pool", "vg1", "vg", "--name pool", "--yes --name page-pool", `"pool"`, `"page-pool"`,
		"500G", "300M", "+100G", "+40M", "20GiB", "32MiB", "40GiB", "64MiB")
	web := filepath.Join(h.poolA, "web.raw")
	halfZeros(t, web)
	sum := sumOfVolume(t, web)
	h.ctl(t, "volume", "adopt", "web", "--path", web, "--format", "raw")
	t.Cleanup(func() { lvm(t, "lvremove", "--yes", "vg/page-pool") })
	config, lines := "", 0
	for _, b := range blocks {
		if b.Heading != "A thin pool of LVM" {
			continue
		}
		text := here.Replace(b.Text)
		if b.Language == "toml" {
			config = text
			continue
		}
		for line := range strings.Lines(text) {
			lines++
			words := strings.Fields(line)
			switch {
			case words[0] == "volferryctl" && strings.Contains(line, "/dev/vg/old"):
				lvm(t, "lvcreate", "--yes", "--virtualsize", "32M", "--thinpool", "page-pool", "--name", "old", "vg")
				h.ctl(t, words[1:]...)
			case words[0] == "volferryctl" && words[2] == "migrate":
				h.noteMove(t, get[api.Migration](t, h, "migration", words[1:]...), kinds.NoGuest)
			case words[0] == "volferryctl":
				h.ctl(t, words[1:]...)
			case strings.Contains(line, "check-config"): // what the next line begins is checked
			case strings.Contains(line, "systemctl restart volferryd"):
				h.configure(t, config)
			default:
				lvm(t, words...)
			}
		}
	}
	if lines < 9 || config == "" {
		t.Fatalf("%s has %d commands and the configuration %q", page, lines, config)
	}
	volume := func(name string) api.Volume { return get[api.Volume](t, h, "volume", "volume", "show", name) }
	if v := volume("db"); v.SizeBytes != 64<<20 || v.Location.Pool != "thin" || v.Location.Path != "/dev/vg/db" || v.Location.ImageBytes != 0 {
		t.Errorf("db is %+v", v)
	}
	v := volume("web")
	if v.Location.Pool != "thin" || sumOfVolume(t, v.Location.Path) != sum {
		t.Errorf("web is at %+v, or has changed", v.Location)
	}
	if bytes := thinBytes(t, v.Location.Path); bytes > volumeBytes/2 {
		t.Errorf("web has %d bytes of data, and takes %d of its thin pool", volumeBytes/4, bytes)
	}
	if l := volume("old").Location; l.Pool != "thin" || l.Name != "old" {
		t.Errorf("old is at %+v", l)
	}
	if p := poolOf(t, h, "thin"); p.Type != "connector" || p.FreeBytes <= 0 || p.FreeBytes >= p.CapacityBytes {
		t.Errorf("the pool is %+v", p)
	}
	h.noteMove(t, get[api.Migration](t, h, "migration", "volume", "migrate", "web", "--to-pool", "b", "--delete-source"), kinds.NoGuest)
	for _, name := range []string{"db", "old"} {
		h.ctl(t, "volume", "delete", name, "--yes")
	}
	assertThinPoolIsEmpty(t, "page-pool")
}

// assertThinPoolIsEmpty claims that no volume is left in a thin pool.
func assertThinPoolIsEmpty(t *testing.T, pool string) {
	t.Helper()
	left, err := exec.CommandContext(t.Context(), "lvs", "--noheadings", "-o", "lv_name", "--select", "pool_lv="+pool, "vg").Output()
	if err != nil || strings.TrimSpace(string(left)) != "" {
		t.Errorf("in thin pool %s is left: %s, %v", pool, left, err)
	}
}

// TestStorageAGuestMovesIntoAThinPoolAndGrowsThere, while it writes: once in vain, and once by a
// daemon that is killed in the middle of the copy.
func TestStorageAGuestMovesIntoAThinPoolAndGrowsThere(t *testing.T) {
	storageDevice(t, walked[0])
	thinPool(t, "guest-pool", "200M")
	h := startHost(t)
	h.configure(t, "[connector_pools]\nthin = { connector = \"lvm\", vg = \"vg\", vg_uuid = \""+groupUUID(t)+"\", thin_pool = \"guest-pool\" }\n")
	h.virsh(t, "capabilities")
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	v := g.start(t, "vda", "--to-pool", "thin")
	v.copy(t)
	v.cancel(t)
	assertThinPoolIsEmpty(t, "guest-pool")
	v = g.start(t, "vda", "--to-pool", "thin", "--bandwidth", "4MiB/s")
	v.copyPartly(t)
	h.KillDaemon()
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.ctl(t, "migration", "set", v.ID, "--bandwidth", "0")
	v.copy(t)
	v.finish(t)
	for range 2 { // the second time it has that size
		h.ctl(t, resizeArgs(g.volumeName("vda"), grownBytes)...)
		g.assertSize(t, grownBytes)
	}
	g.sees(t, grownBytes)
	e := h.refuses(t, api.CodeInvalidArgument, resizeArgs(g.volumeName("vda"), grownBytes+512)...)
	mustContain(t, e.Message, "say that size")
	g.quiesce(t)
	before := g.writesBeyond(t)
	g.migrate(t, "vda", "--to-pool", "b", "--delete-source")
	g.assertSettled(t)
	g.stillHolds(t, before)
	assertThinPoolIsEmpty(t, "guest-pool")
}

// TestStorageADaemonThatDiesLeavesNoVolumeThatNobodyKnows: it is killed when the connector has made
// a volume, and before the journal knows which.
func TestStorageADaemonThatDiesLeavesNoVolumeThatNobodyKnows(t *testing.T) {
	storageDevice(t, walked[0])
	thinPool(t, "dying-pool", "100M")
	h := startHost(t)
	h.virsh(t, "capabilities")
	// A connector that kills the daemon once it has made a volume.
	dir := t.TempDir()
	script := "#!/bin/sh\nin=$(cat)\nout=$(printf %s \"$in\" | " + filepath.Join(programs(t), "connectors", "lvm") + ") || exit\n" +
		"case $in in *'\"verb\":\"create\"'*) if [ ! -e " + dir + "/killed ]; then touch " + dir + "/killed; kill -9 $PPID; sleep 60; fi ;; esac\nprintf '%s\\n' \"$out\"\n"
	if err := os.WriteFile(filepath.Join(dir, "killer"), []byte(script), 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	h.configure(t, "[connector_pools]\nthin = { connector = \"killer\", vg = \"vg\", vg_uuid = \""+groupUUID(t)+"\", thin_pool = \"dying-pool\" }\n")
	h.Flags = append(h.Flags, "--connector-dir", dir)
	h.KillDaemon()
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := h.Ctl(t.Context(), "volume", "create", "db", "--size", "32MiB", "--pool", "thin"); err == nil {
		t.Fatalf("the daemon was not killed: %s", out)
	}
	if _, err := os.Stat(filepath.Join(dir, "killed")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/dev/vg/db"); err != nil {
		t.Fatalf("the volume was not made, which proves nothing: %v", err)
	}
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := untilSettled(t.Context(), h, "db"); err != nil {
		t.Fatal(err)
	}
	v := get[api.Volume](t, h, "volume", "volume", "show", "db")
	if v.Status != api.VolumeAvailable || v.Location.Path != "/dev/vg/db" || v.SizeBytes != 32<<20 {
		t.Errorf("the volume is %+v", v)
	}
	h.ctl(t, "volume", "delete", "db", "--yes")
	if _, err := os.Stat("/dev/vg/db"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is deleted, and there: %v", err)
	}
}

// untilSettled waits until a volume is no longer being created.
func untilSettled(ctx context.Context, h *host, name string) error {
	for {
		out, err := h.Ctl(ctx, "volume", "show", name)
		if err != nil {
			return err
		}
		if !strings.Contains(out, string(api.VolumeCreating)) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}
