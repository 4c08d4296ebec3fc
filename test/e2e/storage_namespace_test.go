// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// namespaceDisk is a namespace of NVMe whose number another one can have in the subsystem: then
// that has the name of the first one in /dev.
type namespaceDisk struct {
	at, path        string // its directory in configfs, and its name in /dev
	itself, another namespace
	disks           int // how many block devices the kernel has for it: one is in /dev
}

// namespace is what a target gives a number in a subsystem to.
type namespace struct{ device, uuid string }

func (n namespace) wwid() string { return "uuid." + n.uuid }

// namespaceOf is LARGER_NVME, with another one that is as large.
func namespaceOf(t *testing.T) *namespaceDisk {
	t.Helper()
	d := &namespaceDisk{
		at: storageDevice(t, "LARGER_NVME_AT"), path: deviceNode(t, storageDevice(t, "LARGER_NVME")),
		another: namespace{"/dev/vg/another_namespace", "3f0c2f7e-53a1-4b1e-8d0a-1f9c6f4b7a20"},
	}
	d.itself = namespace{d.reads(t, "device_path"), d.reads(t, "device_uuid")}
	d.disks = len(disksOf(t, d.itself))
	lvm(t, "lvcreate", "--yes", "--size", strconv.Itoa(largerVolumeBytes)+"b", "--name", filepath.Base(d.another.device), "vg")
	t.Cleanup(func() {
		if d.reads(t, "device_uuid") != d.itself.uuid { // the test has failed
			d.export(t, d.itself)
		}
		lvm(t, "lvremove", "--yes", d.another.device)
	})
	return d
}

func (d *namespaceDisk) reads(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(d.at, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func (d *namespaceDisk) writes(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(d.at, name), []byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

// export has the target give the number to a namespace, once nobody has the one before.
func (d *namespaceDisk) export(t *testing.T, n namespace) {
	t.Helper()
	d.writes(t, "enable", "0")
	before := namespace{d.reads(t, "device_path"), d.reads(t, "device_uuid")}
	eventually(t, "the namespace has gone with all its paths", func() bool { return len(disksOf(t, before)) == 0 })
	d.writes(t, "device_path", n.device)
	d.writes(t, "device_uuid", n.uuid)
	d.writes(t, "enable", "1")
}

// becomes gives the number to a namespace and returns when that is in /dev, by all its paths. It
// has to have the name of the one before.
func (d *namespaceDisk) becomes(t *testing.T, n namespace) {
	t.Helper()
	tool(t, "udevadm", "settle") // or the disk is open, and keeps its name
	d.export(t, n)
	eventually(t, "the namespace is there by all its paths", func() bool { return len(disksOf(t, n)) == d.disks })
	tool(t, "udevadm", "settle")
	if !slices.Contains(disksOf(t, n), filepath.Base(d.path)) {
		t.Fatalf("%s is not at %s, which proves nothing", n.wwid(), d.path)
	}
}

// disksOf are the names of the block devices that the kernel has for a namespace: one that is in
// /dev, and one for each path.
func disksOf(t *testing.T, n namespace) (names []string) {
	t.Helper()
	files, err := filepath.Glob("/sys/class/block/nvme*/wwid")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == n.wwid() { // else it has gone since
			names = append(names, filepath.Base(filepath.Dir(file)))
		}
	}
	return names
}

func (d *namespaceDisk) identities() []string { return []string{d.itself.wwid(), d.another.wwid()} }

func (d *namespaceDisk) whileAnother(t *testing.T, do func()) {
	t.Helper()
	d.becomes(t, d.another)
	do()
	d.becomes(t, d.itself)
}

func TestStorageANameOfANamespaceThatIsAnothersByNowIsRefusedUnderARunningGuest(t *testing.T) {
	dst := namespaceOf(t)
	g := storageGuest(t)
	g.movesToItAlone(t, dst, dst.path, dst.another.device)
	g.assertSettled(t)
}
