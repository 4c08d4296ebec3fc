// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// nameable is a device whose name another device can have for a while.
type nameable interface {
	whileAnother(t *testing.T, do func())
	// identities are what a refusal says that the device was, and is while another one has its
	// name.
	identities() []string
}

// refusesAnother claims that a command is refused while another device has the name, and says
// which.
func (h *host) refusesAnother(t *testing.T, n nameable, code api.Code, args []string) {
	t.Helper()
	n.whileAnother(t, func() {
		e := h.fails(t, api.ExitOpFailed, code, args...)
		mustContain(t, e.Message, n.identities()...)
	})
}

// copiesAndRefusesOthers makes the copy of a move. No step of that is made while another device has
// the name of one of its own.
func (v *move) copiesAndRefusesOthers(t *testing.T, src, dst nameable) {
	t.Helper()
	h := v.g.host
	h.refusesAnother(t, dst, api.CodeDstInUse, v.copyArgs())
	h.refusesAnother(t, src, api.CodeChainChanged, v.copyArgs())
	v.copy(t)
	h.refusesAnother(t, dst, api.CodeDstInUse, v.completeArgs())
	h.refusesAnother(t, src, api.CodeChainChanged, v.completeArgs())
	h.refusesAnother(t, src, api.CodeChainChanged, v.cancelArgs())
}

// slotDevice is a loop device by a number of its own, to which files are attached in turn: the
// number of a LUN is given to another one in the same way.
type slotDevice struct{ Path, file string }

// loopsFrom is the first such number: whoever looks for a free one gets a lower one.
const loopsFrom = 930

// slotOn makes the device with a number, with an empty file of this size in dir.
func slotOn(t *testing.T, dir string, number int, sizeBytes int64) *slotDevice {
	t.Helper()
	d := &slotDevice{Path: fmt.Sprintf("/dev/loop%d", loopsFrom+number), file: filepath.Join(dir, fmt.Sprintf("slot-%d", number))}
	d.attach(t, d.file, sizeBytes)
	t.Cleanup(func() {
		_ = exec.CommandContext(context.WithoutCancel(t.Context()), "losetup", "--detach", d.Path).Run()
	})
	return d
}

// attach makes the device show this file, which is made if it is not there.
func (d *slotDevice) attach(t *testing.T, file string, sizeBytes int64) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	tool(t, "truncate", "--size", fmt.Sprint(sizeBytes), file)
	tool(t, "losetup", "--direct-io=on", d.Path, file)
}

// whileAnother runs do while the device shows another file.
func (d *slotDevice) whileAnother(t *testing.T, do func()) {
	t.Helper()
	tool(t, "losetup", "--detach", d.Path)
	d.attach(t, d.file+"-another", volumeBytes)
	do()
	tool(t, "losetup", "--detach", d.Path)
	d.attach(t, d.file, volumeBytes)
}

func (d *slotDevice) identities() []string { return []string{d.file + " ", d.file + "-another"} }

func TestADeviceWhoseNumberIsAnothersByNowIsNeitherReadNorWritten(t *testing.T) {
	leftToTestE2E(t)
	h := sharedHost(t)
	dir := t.TempDir()
	src, dst := slotOn(t, dir, 0, volumeBytes), slotOn(t, dir, 1, volumeBytes)
	d := lab.Disk{Volume: lab.Volume{Path: src.Path, Format: "raw"}, Serial: "slot", Seed: 930, Fill: lab.Fill{Seed: 930, Percent: 30}}
	if err := lab.FillVolume(d.Path, d.Fill); err != nil {
		t.Fatal(err)
	}
	g := h.stoppedGuest(t, d)
	v := g.start(t, "vda", "--to-path", dst.Path)
	v.copiesAndRefusesOthers(t, src, dst)
	for _, file := range []string{src.file, dst.file} {
		if sum := sumOf(t, file+"-another"); sum != sumOfZeros(t, dir) {
			t.Errorf("%s-another was written", file)
		}
	}
	v.complete(t)
	g.assertSettled(t)
}

// sumOfZeros is the sum of a volume that nobody has written.
func sumOfZeros(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "zeros")
	tool(t, "truncate", "--size", fmt.Sprint(volumeBytes), file)
	return sumOf(t, file)
}

// onDeviceAt is a volume of no guest on the device at a path.
func (h *host) onDeviceAt(t *testing.T, path string) *volume {
	t.Helper()
	return h.adoptVolume(t, lab.Disk{Volume: lab.Volume{Path: path, Format: "raw"}})
}

// refusesAnotherAtRest claims that no command takes another device for that of the volume, which
// nothing is done to: each is refused at once and names both, and the other one is not written. It
// returns the other one's identity.
func (v *volume) refusesAnotherAtRest(t *testing.T, n nameable, instance string) (found string) {
	t.Helper()
	n.whileAnother(t, func() {
		sum := sumOf(t, v.disk.Path)
		for _, args := range [][]string{
			{"volume", "migrate", v.name, "--to-pool", "a"},
			{"volume", "migrate", v.name, "--to-pool", "a", "--dry-run"},
			{"volume", "attach", v.name, instance},
			{"volume", "resize", v.name, "--size", fmt.Sprint(2 * largerVolumeBytes)},
			{"volume", "delete", v.name, "--yes"},
		} {
			e := v.host.fails(t, api.ExitRefused, api.CodeChainChanged, args...)
			mustContain(t, e.Message, n.identities()...)
			found, _ = e.Details["found"].(string)
		}
		if sumOf(t, v.disk.Path) != sum {
			t.Error("the other device was written")
		}
	})
	return found
}

func TestADeviceThatGotThePathOfAVolumeAtRestIsNotTakenForIt(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	device := slotOn(t, t.TempDir(), 2, volumeBytes)
	if err := lab.FillVolume(device.Path, lab.Fill{Seed: 932, Percent: 30}); err != nil {
		t.Fatal(err)
	}
	sum := sumOf(t, device.Path)
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw))
	v := h.onDeviceAt(t, device.Path)
	identity := v.show(t).Location.Identity
	mustContain(t, identity, device.file+" ")
	mustContain(t, h.ctl(t, "volume", "show", v.name), "identity:", identity)
	found := v.refusesAnotherAtRest(t, device, g.Name)

	tool(t, "cp", device.file, device.file+"-another") // what an operator does who replaces a device
	device.whileAnother(t, func() {
		h.ctl(t, "volume", "set", v.name, "--identity", found)
		h.ctl(t, "volume", "migrate", v.name, "--to-pool", "a")
	})
	if now := v.show(t).Location; now.Pool != "a" || now.Identity != "" || sumOf(t, now.Path) != sum {
		t.Errorf("the volume is at %+v", now)
	}

	h.ctl(t, "volume", "migrate", v.name, "--to-path", device.Path, "--yes")
	if now := v.show(t).Location; now.Identity != identity {
		t.Errorf("moved to the device, the volume has the identity %q, want %q", now.Identity, identity)
	}
	v.refusesAnotherAtRest(t, device, g.Name)
	g.assertSettled(t)
}
