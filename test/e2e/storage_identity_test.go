// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// namedVolume is a logical volume by its name in /dev/mapper, which another one gets while it is
// renamed.
type namedVolume struct{ name, uuid, anotherUUID string }

// namedTag is on all such volumes, whatever their names are.
const namedTag = "volferry-named"

// nameVolumes makes logical volumes with these names, and another one for each, which are gone when
// the test has ended.
func nameVolumes(t *testing.T, names ...string) (volumes []*namedVolume) {
	t.Helper()
	t.Cleanup(func() { lvm(t, "lvremove", "--yes", "@"+namedTag) })
	uuidOf := func(name string) string {
		lvm(t, "lvcreate", "--yes", "--addtag", namedTag, "--size", strconv.Itoa(volumeBytes)+"b", "--name", name, "vg")
		return saysOfItself(t, mapperPath(name), "dm/uuid")
	}
	for _, name := range names {
		volumes = append(volumes, &namedVolume{name, uuidOf(name), uuidOf(name + "_another")})
	}
	return volumes
}

func mapperPath(name string) string { return "/dev/mapper/vg-" + name }

// saysOfItself is what the kernel has in a file of a device.
func saysOfItself(t *testing.T, path, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/sys/class/block", filepath.Base(deviceNode(t, path)), file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func (n *namedVolume) path() string         { return mapperPath(n.name) }
func (n *namedVolume) identities() []string { return []string{n.uuid, n.anotherUUID} }

func (n *namedVolume) whileAnother(t *testing.T, do func()) {
	t.Helper()
	whileRenamed(n.name, n.name+"_another", func(from, to string) { lvm(t, "lvrename", "vg", from, to) }, do)
}

// whileRenamed runs do while what is called another has a name, and what has that is aside.
func whileRenamed(name, another string, rename func(from, to string), do func()) {
	aside := name + "_aside"
	rename(name, aside)
	rename(another, name)
	do()
	rename(name, another)
	rename(aside, name)
}

// QEMU has its own device open, whatever has the name of that.
func TestStorageANameInDevMapperThatIsAnothersByNowIsRefusedUnderARunningGuest(t *testing.T) {
	h := storageHost(t)
	volumes := nameVolumes(t, "named1", "named2")
	src, dst := volumes[0], volumes[1]
	same := unchanged(t, []string{src.path() + "_another", dst.path() + "_another"})
	g := h.runningGuest(t, h.diskOn(t, &lab.Loop{Path: src.path()}))
	to := []string{"--to-path", dst.path()}

	src.whileAnother(t, func() {
		e := g.refusesToMove(t, "vda", api.CodeChainChanged, to...)
		mustContain(t, e.Message, src.path())
	})
	v := g.start(t, "vda", to...)
	h.refusesAnother(t, src, api.CodeChainChanged, v.cancelArgs())
	g.writes(t)
	v.cancel(t)
	g.assertSettledAndGoOn(t)

	v = g.start(t, "vda", to...)
	v.copiesAndRefusesOthers(t, src, dst)
	g.writes(t)
	v.complete(t)
	same()
	g.assertSettled(t)
}

// lunDisk is the disk of a LUN to which another unit can be mapped: then it has the name of the
// first one.
type lunDisk struct{ path, wwid, anotherWWID string }

func lunOf(t *testing.T) *lunDisk {
	t.Helper()
	storageDevice(t, "LUN")
	d := &lunDisk{}
	d.path, d.wwid = diskOfLUN(t)
	return d
}

// diskOfLUN is the disk that the LUN has now, and its WWID.
func diskOfLUN(t *testing.T) (path, wwid string) {
	t.Helper()
	address, err := os.ReadFile(filepath.Join(os.Getenv("LUN"), "..", "..", "address"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the LUN has a disk", func() bool {
		tool(t, "udevadm", "settle")
		found, err := filepath.Glob("/sys/bus/scsi/devices/" + strings.TrimSpace(string(address)) + ":0/block/sd*")
		if err != nil || len(found) == 0 {
			return false
		}
		path = "/dev/" + filepath.Base(found[0])
		return isBlockDevice(path)
	})
	return path, saysOfItself(t, path, "device/wwid")
}

// mapUnit gives the LUN to another unit.
func mapUnit(t *testing.T, variable string) {
	t.Helper()
	link := filepath.Join(os.Getenv("LUN"), "unit")
	tool(t, "udevadm", "settle") // or the disk is open, and keeps its name
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(os.Getenv(variable), link); err != nil {
		t.Fatal(err)
	}
}

func (d *lunDisk) identities() []string { return []string{d.wwid, d.anotherWWID} }

func (d *lunDisk) whileAnother(t *testing.T, do func()) {
	t.Helper()
	mapUnit(t, "LUN_UNIT2")
	path, wwid := diskOfLUN(t)
	if d.anotherWWID = wwid; path != d.path || wwid == d.wwid {
		t.Fatalf("the LUN was %s, %s and is %s, %s, which proves nothing", d.path, d.wwid, path, wwid)
	}
	do()
	mapUnit(t, "LUN_UNIT")
	if path, wwid = diskOfLUN(t); path != d.path || wwid != d.wwid {
		t.Fatalf("the LUN was %s, %s and is %s, %s", d.path, d.wwid, path, wwid)
	}
}

// movesToItAlone moves the disk of the guest to a device. Nobody has a destination open between two
// steps, so that it can be removed and another one gets its name: then no step is made, and the
// other one is not written.
func (g *guest) movesToItAlone(t *testing.T, dst nameable, path, another string) {
	t.Helper()
	h := g.host
	same := unchanged(t, []string{another})
	v := g.start(t, "vda", "--to-path", path)
	h.refusesAnother(t, dst, api.CodeDstInUse, v.copyArgs())
	v.copy(t)
	h.refusesAnother(t, dst, api.CodeDstInUse, v.completeArgs())
	g.writes(t)
	v.complete(t)
	tool(t, "blockdev", "--flushbufs", another) // a target writes past the page cache of what it exports
	same()
}

func TestStorageANameOfASCSIDiskThatIsAnothersByNowIsRefusedUnderARunningGuest(t *testing.T) {
	dst := lunOf(t)
	g := storageGuest(t)
	g.movesToItAlone(t, dst, dst.path, "/dev/vg/lun2")
	g.assertSettledAndGoOn(t)
	g.migrate(t, "vda", "--to-pool", "b")
	g.assertSettled(t)
}

func TestStorageADeviceThatGotThePathOfAVolumeAtRestIsNotTakenForIt(t *testing.T) {
	h := storageHost(t)
	logical, lun, namespace := nameVolumes(t, "resting")[0], lunOf(t), namespaceOf(t)
	g := h.stoppedGuest(t, h.diskIn(t, h.poolA, api.FormatRaw))
	for path, n := range map[string]nameable{logical.path(): logical, lun.path: lun, namespace.path: namespace} {
		v := h.onDeviceAt(t, path)
		v.refusesAnotherAtRest(t, n, g.Name)
		t.Log("refused: another device at", path)
		h.ctl(t, "volume", "attach", v.name, g.Name)
		h.ctl(t, "volume", "detach", v.name, g.Name)
	}
	g.assertSettled(t)
}
