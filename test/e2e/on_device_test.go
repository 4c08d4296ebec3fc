// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// fullBytes is how large a device has to be for a qcow2 image of a volume.
func fullBytes(t *testing.T) int64 {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "qemu-img", "measure", "--output", "json", "-O", "qcow2", "--size", fmt.Sprint(volumeBytes)).Output()
	if err != nil {
		t.Fatal(err)
	}
	var measured struct {
		Full int64 `json:"fully-allocated"`
	}
	if err := json.Unmarshal(out, &measured); err != nil {
		t.Fatal(err)
	}
	return measured.Full
}

// imageOn makes a filled volume that is a qcow2 image on a block device.
func (h *host) imageOn(t *testing.T, dir string, device *lab.Loop) lab.Disk {
	t.Helper()
	d := h.diskIn(t, dir, api.FormatRaw)
	tool(t, "qemu-img", "create", "-q", "-f", "qcow2", device.Path, fmt.Sprint(volumeBytes))
	tool(t, "qemu-img", "convert", "-n", "-f", "raw", "-O", "qcow2", d.Path, device.Path)
	if err := os.Remove(d.Path); err != nil {
		t.Fatal(err)
	}
	d.Path, d.Format = device.Path, "qcow2"
	return d
}

// isImageOn claims that a volume is a qcow2 image on a device, with the size that its guest sees.
func isImageOn(t *testing.T, at api.Location, device *lab.Loop) {
	t.Helper()
	if want := (api.Location{Path: device.Path, Format: api.FormatQcow2, SizeBytes: volumeBytes}); !identifiedAt(at, want) {
		t.Errorf("the volume is at %+v, want %+v with an identity", at, want)
	}
}

// identifiedAt reports whether a volume is at a location, whose identity is known, whatever that
// is.
func identifiedAt(at, want api.Location) bool {
	want.Identity = at.Identity
	return at == want && at.Identity != ""
}

func TestAnImageOnADeviceOfARunningGuestIsMovedAndComesBack(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	first, second := h.device(t, a, volumeBytes+4<<20), h.device(t, a, fullBytes(t))
	g := h.runningGuest(t, h.imageOn(t, a, first))
	isImageOn(t, g.volume(t, "vda").Location, first)

	v := g.start(t, "vda", "--to-path", second.Path)
	g.writes(t)
	v.copy(t)
	g.writes(t)
	v.cancel(t)
	g.assertSettledAndGoOn(t)
	isImageOn(t, g.volume(t, "vda").Location, first)

	g.migrate(t, "vda", "--to-path", second.Path)
	isImageOn(t, g.volume(t, "vda").Location, second)
	g.assertSettledAndGoOn(t)
	g.migrate(t, "vda", "--to-pool", "b", "--to-format", "raw")

	v = g.start(t, "vda", "--to-path", first.Path, "--to-format", "qcow2", "--bandwidth", "4MiB/s")
	v.copyThroughDeath(t)
	g.writes(t)
	v.complete(t)
	isImageOn(t, g.volume(t, "vda").Location, first)
	g.assertSettledAndGoOn(t)
	g.migrate(t, "vda", "--to-path", second.Path, "--method", "mirror")
	isImageOn(t, g.volume(t, "vda").Location, second)
	g.assertSettled(t)
}

func TestAnImageOnADeviceOfAStoppedGuestIsMovedAndCancelled(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	first, second := h.device(t, a, fullBytes(t)), h.device(t, a, fullBytes(t))
	g := h.stoppedGuest(t, h.imageOn(t, a, first))
	v := g.start(t, "vda", "--to-path", second.Path)
	g.boot(t) // on the overlay
	g.writes(t)
	g.powerOff(t)
	v.cancel(t)
	isImageOn(t, g.volume(t, "vda").Location, first)
	v = g.start(t, "vda", "--to-path", second.Path)
	v.copy(t)
	g.boot(t)
	g.writes(t)
	g.powerOff(t)
	v.complete(t)
	isImageOn(t, g.volume(t, "vda").Location, second)
	g.assertSettled(t)
}

func TestAnImageOnADeviceThatIsNotAttachedIsMoved(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	first, second := h.device(t, a, fullBytes(t)), h.device(t, a, fullBytes(t))
	d := h.imageOn(t, a, first)
	h.ctl(t, "volume", "adopt", "data", "--path", first.Path, "--format", "qcow2")
	for _, args := range [][]string{
		{"--to-path", second.Path, "--yes"}, {"--to-pool", "b", "--to-format", "raw"}, {"--to-path", first.Path, "--to-format", "qcow2", "--yes"},
	} {
		h.migrateUnattached(t, d, args...)
	}
	e := h.refuses(t, api.CodeUnsupportedDisk, "volume", "resize", "data", "--size", fmt.Sprint(int64(volumeBytes+1<<20)))
	mustContain(t, e.Message, first.Path)
}

// A linked clone on a device, as oVirt makes them of its templates.
func TestALinkedCloneOnADeviceIsMoved(t *testing.T) {
	leftToTestE2E(t)
	h, a, b := sharedPools(t)
	base, device := h.diskIn(t, b, api.FormatQcow2), h.device(t, a, fullBytes(t))
	same := unchanged(t, []string{base.Path})
	d := base
	n := h.number()
	d.Path, d.Serial, d.Seed, d.OpenEnd = device.Path, fmt.Sprintf("serial-%d", n), uint64(n), true
	tool(t, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base.Path, device.Path)
	g := h.runningGuest(t, d)
	if l := g.volume(t, "vda").Location; l.Path != device.Path || !l.IsLinkedClone() {
		t.Fatalf("the volume is at %+v", l)
	}
	v := g.start(t, "vda", "--to-pool", "a")
	v.copy(t)
	g.writes(t)
	v.cancel(t)
	same()
	g.assertSettledAndGoOn(t)
	if at := g.migrate(t, "vda", "--to-pool", "a", "--to-format", "qcow2").Dst; at.IsLinkedClone() {
		t.Errorf("the volume is at %+v", at)
	}
	same()
	g.assertSettled(t)
}

// An image that may outgrow its device is taken neither as it is nor made.
func TestAnImageOnADeviceThatItMayOutgrowIsASlotAndNoVolume(t *testing.T) {
	h, a, _ := sharedPools(t)
	loop := h.device(t, a, volumeBytes)
	tool(t, "qemu-img", "create", "-q", "-f", "qcow2", loop.Path, fmt.Sprint(volumeBytes))
	g := h.defineGuest(t, h.diskIn(t, a, api.FormatRaw))
	h.virsh(t, "attach-disk", g.Name, loop.Path, "vdb", "--sourcetype", "block", "--subdriver", "qcow2", "--config")
	g.slots = g.persistentSlots(t)
	g.adopt(t)
	i := slices.IndexFunc(g.instance.BlockDeviceMappings, func(s api.BlockDeviceMapping) bool { return s.Device == "vdb" })
	if i < 0 || g.instance.BlockDeviceMappings[i].VolumeID != nil {
		t.Fatalf("block device mappings: %+v, want vdb without a volume", g.instance.BlockDeviceMappings)
	}
	larger := fmt.Sprintf("lvextend --size %db %s", fullBytes(t), loop.Path)
	mustContain(t, g.instance.BlockDeviceMappings[i].Note, larger)
	h.virsh(t, "detach-disk", g.Name, "vdb", "--config")
	e := h.refuses(t, api.CodeUnsupportedDisk, "volume", "adopt", "theirs", "--path", loop.Path, "--format", "qcow2")
	mustContain(t, e.Message, larger)
	e = h.refuses(t, api.CodeSizeMismatch, "volume", "migrate", g.volumeName("vda"), "--to-path", loop.Path, "--to-format", "qcow2")
	mustContain(t, e.Message, loop.Path, fmt.Sprintf("(%d bytes)", fullBytes(t)), "--to-format raw")
	file := filepath.Join(a, "qcow2-file.qcow2")
	tool(t, "qemu-img", "create", "-q", "-f", "qcow2", file, fmt.Sprint(volumeBytes))
	h.ctl(t, "volume", "adopt", "file", "--path", file, "--format", "qcow2")
	e = h.refuses(t, api.CodeInvalidArgument, "volume", "migrate", "file", "--to-path", loop.Path)
	mustContain(t, e.Message, loop.Path, "--to-format raw", "--to-format qcow2")
	h.ctl(t, "volume", "delete", "file", "--yes")
	g.slots = g.persistentSlots(t)
	g.assertSettled(t)
}
