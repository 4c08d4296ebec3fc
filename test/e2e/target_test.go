// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/kinds"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// storageTarget is one of the machine with storage with which there is no session.
type storageTarget struct {
	connector string
	program   string // of the connector; empty: the one that was built
	// options are those of a pool, as KEY=VALUE.
	options []string
	// volumes are the paths that two of its volumes have while they are connected.
	volumes []string
	// sessions are files of the kernel's in which the name of a target is with which there is one.
	sessions, name string
	// lose takes one of its paths away, until what it returns is called.
	lose func(*testing.T) (restore func())
	// copies: the target copies between its volumes.
	copies bool
}

func nvmeTarget(t *testing.T) storageTarget {
	nqn := storageDevice(t, "NAMESPACE_NQN")
	return storageTarget{
		connector: "nvme", options: []string{"nqn=" + nqn, "addresses=127.0.0.1:4420,127.0.0.2:4420"},
		volumes:  []string{os.Getenv("NAMESPACE"), os.Getenv("NAMESPACE2")},
		sessions: "/sys/class/nvme-subsystem/*/subsysnqn", name: nqn,
		lose: loseSecondAddress,
	}
}

func iscsiTarget(t *testing.T) storageTarget {
	iqn := storageDevice(t, "UNIT_IQN")
	return storageTarget{
		connector: "iscsi", options: []string{"iqn=" + iqn, "portals=127.0.0.1:3260,127.0.0.2:3260"},
		volumes:  []string{os.Getenv("UNIT"), os.Getenv("UNIT2")},
		sessions: "/sys/class/iscsi_session/*/targetname", name: iqn,
		lose: loseSecondAddress, copies: true,
	}
}

// loseSecondAddress takes the second path of the targets away.
func loseSecondAddress(t *testing.T) (restore func()) { return loseAddresses(t, "127.0.0.2") }

// loseAddresses has the kernel drop what is sent to these addresses.
func loseAddresses(t *testing.T, addresses ...string) (restore func()) {
	t.Helper()
	route := func(verb, address string) error {
		out, err := exec.Command("ip", "route", verb, "blackhole", address+"/32", "table", "local").CombinedOutput() //nolint:noctx // also when the test has ended
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	var lost []string
	restore = func() {
		for _, address := range lost {
			if err := route("delete", address); err != nil {
				t.Error(err)
			}
		}
		lost = nil
	}
	t.Cleanup(restore)
	for _, address := range addresses {
		if err := route("add", address); err != nil {
			t.Fatal(err)
		}
		lost = append(lost, address)
	}
	return restore
}

// countSessions is with how many paths the kernel has a session with the target.
func (x storageTarget) countSessions(t *testing.T) (n int) {
	t.Helper()
	files, err := filepath.Glob(x.sessions)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(name)) == x.name {
			n++
		}
	}
	return n
}

// pool is the section of the configuration with the pool of the target.
func (x storageTarget) pool() string {
	text := "[connector_pools]\nsan = { connector = \"" + x.connector + "\""
	if x.copies {
		text += `, copy = "on"`
	}
	for _, option := range x.options {
		key, value, _ := strings.Cut(option, "=")
		text += fmt.Sprintf(", %s = %q", key, value)
	}
	return text + " }\n"
}

// host is a storageHost whose pool san is the target.
func (x storageTarget) host(t *testing.T) *host {
	t.Helper()
	h := storageHost(t)
	h.configure(t, x.pool())
	return h
}

// keepsToTheProtocol runs the kit for vendors, with the real kernel on both sides.
func (x storageTarget) keepsToTheProtocol(t *testing.T) {
	t.Helper()
	bin := programs(t)
	var args []string
	for _, v := range x.volumes {
		args = append(args, "--volume", filepath.Base(v))
	}
	if x.copies {
		args = append(args, "--overwrite")
	}
	args = append(append(args, cmp.Or(x.program, filepath.Join(bin, "connectors", x.connector))), x.options...)
	out, err := connectorTest(t, args...)
	t.Log(out)
	if n := x.countSessions(t); err != nil || n > 0 {
		t.Fatalf("%v; sessions that are left: %d", err, n)
	}
	if tried := strings.Contains(out, "ok    copy copies a range"); tried != x.copies {
		t.Errorf("that copy was tried is %v", tried)
	}
}

func TestStorageTheConnectorOfNVMeKeepsToTheProtocol(t *testing.T) {
	nvmeTarget(t).keepsToTheProtocol(t)
}

func TestStorageTheConnectorOfISCSIKeepsToTheProtocol(t *testing.T) {
	iscsiTarget(t).keepsToTheProtocol(t)
}

// TestStorageTheConnectorOfISCSIKeepsToTheProtocolWithoutMultipath, where a target has one portal.
func TestStorageTheConnectorOfISCSIKeepsToTheProtocolWithoutMultipath(t *testing.T) {
	x := iscsiTarget(t)
	x.name = os.Getenv("SINGLE_IQN")
	x.copies = false // there is one volume
	x.options, x.volumes = []string{"iqn=" + x.name, "portals=127.0.0.1:3260"}, []string{os.Getenv("SINGLE")}
	withoutMultipathd(t)
	x.keepsToTheProtocol(t)
}

// withoutMultipathd ends multipathd until the test has ended. The kernel keeps the maps.
func withoutMultipathd(t *testing.T) {
	t.Helper()
	run := func(args ...string) error {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput() //nolint:noctx // also when the test has ended
		t.Logf("%s: %s", strings.Join(args, " "), out)
		return err
	}
	_ = run("multipathd", "shutdown") // it may end before it answers
	eventually(t, "multipathd has ended", func() bool { return exec.CommandContext(t.Context(), "pidof", "multipathd").Run() != nil })
	t.Cleanup(func() {
		if err := run("multipathd"); err != nil {
			t.Error(err)
		}
	})
}

// osBrickTarget is the target of iSCSI, to which the example connects the host.
func osBrickTarget(t *testing.T) storageTarget {
	t.Helper()
	x := iscsiTarget(t)
	root, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for lun, path := range x.volumes {
		text, err := json.Marshal(map[string]any{"driver_volume_type": "iscsi", "data": map[string]any{
			"target_discovered": false, "discard": true,
			"target_iqns": []string{x.name, x.name}, "target_portals": []string{"127.0.0.1:3260", "127.0.0.2:3260"}, "target_luns": []int{lun, lun},
			"target_iqn": x.name, "target_portal": "127.0.0.1:3260", "target_lun": lun,
		}})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(path)+".json"), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	x.program = filepath.Join(root, "daemon", "connectors", "examples", "os-brick")
	x.options, x.copies = []string{"volumes=" + dir, "multipath=yes"}, false
	return x
}

func TestStorageTheExampleWithOSBrickKeepsToTheProtocol(t *testing.T) {
	osBrickTarget(t).keepsToTheProtocol(t)
}

// TestStorageAVolumeOfNoInstanceMovesToAnISCSITargetAndAwayThoughAPathIsLost in each copy.
func TestStorageAVolumeOfNoInstanceMovesToAnISCSITargetAndAwayThoughAPathIsLost(t *testing.T) {
	x := iscsiTarget(t)
	h := x.host(t)
	file := filepath.Join(h.poolA, "plain.raw")
	halfZeros(t, file)
	sum := sumOfVolume(t, file)
	v := h.adoptVolume(t, lab.Disk{Volume: lab.Volume{Path: file, Format: "raw"}})
	move := func(args ...string) {
		t.Helper()
		id := idOf(t, h.ctl(t, append([]string{"--no-wait", "volume", "migrate", v.name, "--bandwidth", "1MiB/s"}, args...)...))
		h.untilCopying(t, id)
		if n := x.countSessions(t); n != 2 {
			t.Fatalf("it is copied with %d paths, which proves nothing", n)
		}
		restore := x.lose(t)
		h.ctl(t, "migration", "set", id, "--bandwidth", "0")
		h.ctl(t, "--progress", "none", "migration", "watch", id)
		m := get[api.Migration](t, h, "migration", "migration", "show", id)
		if m.State != api.MigrationCompleted || m.Error != nil {
			t.Fatalf("it ended as %s: %+v", m.State, m)
		}
		h.noteMove(t, m, kinds.NoGuest)
		if sumOfVolume(t, v.show(t).Location.Path) != sum {
			t.Error("the move has changed the volume")
		}
		restore()
	}
	move("--to-path", x.volumes[0])
	move("--to-pool", "b")
	if n := x.countSessions(t); n > 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// TestStorageAGuestMovesBetweenTwoVolumesOfATargetThatCopiesByItself, while it writes and by a
// daemon that is killed in the copy. Not a byte of the copy is written by this host.
func TestStorageAGuestMovesBetweenTwoVolumesOfATargetThatCopiesByItself(t *testing.T) {
	x := iscsiTarget(t)
	h := x.host(t)
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	g.migrate(t, "vda", "--to-path", x.volumes[0])

	v := g.start(t, "vda", "--bandwidth", "4MiB/s", "--to-path", x.volumes[1])
	before := sectorsWritten(t, x.volumes[1])
	v.copyPartly(t)
	if m := get[api.Migration](t, h, "migration", "migration", "show", v.ID); m.Phase != "offload" {
		t.Errorf("the phase is %q, want that of a copy that the target makes", m.Phase)
	}
	v.copyThroughDeath(t)
	if n := sectorsWritten(t, x.volumes[1]) - before; n > 0 {
		t.Errorf("this host has written %d sectors of the copy", n)
	}
	v.finish(t)
	g.writes(t)
	g.migrate(t, "vda", "--to-pool", "b")
	g.assertSettled(t)
	if n := x.countSessions(t); n > 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// sectorsWritten is what this host has written to a device since it has that.
func sectorsWritten(t *testing.T, path string) int64 {
	t.Helper()
	device, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("/sys/class/block", filepath.Base(device), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	const written = 6 // the seventh field, in Documentation/block/stat.rst
	n, err := strconv.ParseInt(strings.Fields(string(text))[written], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestStorageTwoVolumesOfAGuestMoveToATargetThatIsConnectedForThemAndAway, while it writes: once in
// vain, once by a daemon that is killed in the copy, and with one of two paths less. The session
// ends with the last volume.
func TestStorageTwoVolumesOfAGuestMoveToATargetThatIsConnectedForThemAndAway(t *testing.T) {
	for _, x := range []storageTarget{nvmeTarget(t), iscsiTarget(t)} {
		t.Run(x.connector, x.takesTwoVolumes)
	}
}

func (x storageTarget) takesTwoVolumes(t *testing.T) {
	h := x.host(t)
	g := h.runningGuest(t, h.diskIn(t, h.poolA, api.FormatRaw), h.diskIn(t, h.poolA, api.FormatRaw))
	connected := func(when string, want bool) {
		t.Helper()
		if is := x.countSessions(t) > 0; is != want {
			t.Fatalf("%s: that the target is connected is %v", when, is)
		}
	}
	slow := []string{"--bandwidth", "4MiB/s"}

	v := g.start(t, "vda", "--to-path", x.volumes[0])
	connected("src is frozen", true)
	v.copy(t)
	v.cancel(t)
	connected("after a cancel", false)

	v = g.start(t, "vda", append(slow, "--to-path", x.volumes[0])...)
	v.copyPartly(t)
	restore := x.lose(t)
	v.copyThroughDeath(t)
	v.finish(t)
	restore()
	g.migrate(t, "vdb", "--to-path", x.volumes[1])
	for _, disk := range []string{"vda", "vdb"} {
		if at := g.volume(t, disk).Location; at.Pool != "san" {
			t.Errorf("%s is at %+v, want it in pool san", disk, at)
		}
	}
	t.Log("both are on the target")

	v = g.start(t, "vda", append(slow, "--to-pool", "b")...)
	v.copyPartly(t)
	restore = x.lose(t)
	h.ctl(t, "migration", "set", v.ID, "--bandwidth", "0")
	v.copy(t)
	v.finish(t)
	restore()
	connected("while the other volume is there", true)
	g.writes(t)
	g.migrate(t, "vdb", "--to-pool", "b")
	connected("after the last volume", false)
	g.assertSettled(t)
}
