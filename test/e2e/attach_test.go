// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

func TestVolumeComesToARunningGuestAndLeavesIt(t *testing.T) {
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	device := h.diskOn(t, h.device(t, a, volumeBytes))
	for i, c := range []struct {
		name string
		v    *volume
	}{
		{"device", h.adoptVolume(t, device)},
		{"raw file", h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw))},
		{"qcow2 file", h.adoptVolume(t, h.diskIn(t, a, api.FormatQcow2))},
	} {
		t.Run(c.name, func(t *testing.T) {
			if i > 0 {
				leftToTestE2E(t)
			}
			p := g.attach(t, c.v)
			p.writes(t)
			p.quiesce(t)
			p.detach(t)
			p.assertHolds(t)
		})
	}
	t.Run("away from a guest that writes, and there again", func(t *testing.T) {
		v := h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw))
		for range 2 {
			p := g.attach(t, v)
			p.writes(t)
			p.detach(t)
			p.assertHoldsWhatWasAcknowledged(t)
		}
	})
	g.assertSettled(t)
}

func TestAttachmentIsTheSameAfterARebootAndAStart(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	written, read := h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw)), h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw))
	rw := g.attach(t, written)
	ro := g.attach(t, read, "--device", "vdf", "--mode", "ro")
	if rw.dev != "vdb" || ro.dev != "vdf" {
		t.Errorf("devices are %s and %s, want the next free one, and the one that was chosen", rw.dev, ro.dev)
	}
	rw.writes(t)
	attached := []*plugged{rw, ro}
	still := func(t *testing.T) {
		g.seesItsDisks(t)
		rw.writes(t)
		for _, p := range attached {
			p.assertAttached(t)
		}
		if modes := g.openModes(t, read.disk.Path); len(modes) == 0 || modes[0] != "read" || len(modes) > 1 {
			t.Errorf("QEMU has the image of a volume that is attached ro open for %v", modes)
		}
	}
	still(t)
	if err := g.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	still(t)
	g.destroy(t)
	g.boot(t)
	still(t)

	// One away while it runs, the other while it is off.
	ro.detach(t)
	read.assertUntouched(t)
	rw.quiesce(t)
	g.assertAtRest(t)
	g.powerOff(t)
	rw.detach(t)
	rw.assertHolds(t)
	g.boot(t)
	g.assertSettled(t)
}

// What another host has written to a device is what an instance finds there, whatever this
// host has in memory of it. Under the unit it takes a program beside the daemon to drop that.
func TestAttachedDeviceHoldsWhatAnotherHostHasWritten(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw))
	device := h.device(t, a, volumeBytes)
	v := h.adoptVolume(t, lab.Disk{Volume: lab.Volume{Path: device.Path, Format: "raw"}})
	// Held open, or the kernel forgets the pages with the last close.
	held, err := os.Open(device.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	read := func() byte {
		t.Helper()
		first := make([]byte, 1)
		if _, err := held.ReadAt(first, 0); err != nil {
			t.Fatal(err)
		}
		return first[0]
	}
	for i, does := range []string{"attach", "detach"} {
		before, after := byte(i), byte(i+1)
		read() // it is in memory from now on
		elsewhere, err := os.OpenFile(device.File, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = elsewhere.Write(bytes.Repeat([]byte{after}, volumeBytes))
		if err := errors.Join(err, elsewhere.Sync(), elsewhere.Close()); err != nil {
			t.Fatal(err)
		}
		if got := read(); got != before {
			t.Fatalf("before the %s the device holds %d already, want %d, which this host has in memory", does, got, before)
		}
		h.ctl(t, "volume", does, v.name, g.Name)
		if got := read(); got != after {
			t.Errorf("after the %s the device holds %d, want the %d that was written elsewhere", does, got, after)
		}
	}
	g.assertSettled(t)
}

func TestStoppedInstanceHasTheVolumeFromItsNextStart(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.stoppedGuest(t, h.diskIn(t, a, api.FormatRaw))
	file, device := h.adoptVolume(t, h.diskIn(t, a, api.FormatQcow2)), h.adoptVolume(t, h.diskOn(t, h.device(t, a, volumeBytes)))
	g.attach(t, file).detach(t)
	file.assertUntouched(t)
	p, q := g.attach(t, file), g.attach(t, device, "--mode", "ro")
	g.boot(t)
	p.writes(t)
	p.quiesce(t)
	g.assertAtRest(t)
	g.powerOff(t)
	p.detach(t)
	q.detach(t)
	p.assertHolds(t)
	device.assertUntouched(t)
	g.assertSettled(t)
}

func TestPausedGuestGetsAVolumeAndLetsGoOfItWhenItRuns(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	v := h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw))
	g.pause(t)
	p := g.attach(t, v)
	if state := g.state(t); state != "paused" {
		t.Fatalf("the guest was paused by its user, and is %s after an attach", state)
	}
	g.resume(t)
	p.appears(t)
	p.writes(t)
	g.pause(t)
	detached := g.inBackground(t, "volume", "detach", v.name, g.Name)
	eventually(t, "the detach has begun", func() bool {
		atts := v.show(t).Attachments
		return len(atts) == 1 && atts[0].State == api.AttachmentDetaching
	})
	g.resume(t)
	if err := <-detached; err != nil {
		t.Fatal(err)
	}
	p.assertDetached(t)
	p.assertHoldsWhatWasAcknowledged(t)
	g.assertSettled(t)
}

// inBackground runs volferryctl beside the test.
func (g *guest) inBackground(t *testing.T, args ...string) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := g.host.Ctl(t.Context(), args...)
		ended <- err
	}()
	return ended
}

// sharedVolume is a volume that several instances may have. It is of a type of
// its own, and the part of it that a guest writes to is that guest's number.
func (h *host) sharedVolume(t *testing.T, d lab.Disk) *volume {
	t.Helper()
	h.ctl(t, "type", "create", "shared-by-"+t.Name(), "--multiattach")
	return h.adoptVolume(t, d, "--type", "shared-by-"+t.Name())
}

func TestVolumeThatTwoInstancesOfAHostShareLeavesBothAtOnce(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	guests := []*guest{h.runningGuest(t, h.diskIn(t, a, api.FormatRaw)), h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))}
	v := h.sharedVolume(t, h.diskOn(t, h.device(t, a, volumeBytes)))
	for range 2 {
		var both []*plugged
		for i, g := range guests {
			v.disk.Part, v.disk.Parts, v.disk.Seed = uint64(i), 2, v.disk.Seed+1
			both = append(both, g.attach(t, v))
		}
		for _, p := range both {
			p.writes(t)
		}
		for _, p := range both {
			p.quiesce(t)
		}
		var errs []error
		for _, ended := range []<-chan error{
			guests[0].inBackground(t, "volume", "detach", v.name, guests[0].Name),
			guests[1].inBackground(t, "volume", "detach", v.name, guests[1].Name),
		} {
			errs = append(errs, <-ended)
		}
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for _, p := range both {
			p.assertDetached(t)
			p.assertHolds(t)
		}
	}
	// One leaves, the other has it still and is not disturbed.
	first, second := guests[0].attach(t, v), guests[1].attach(t, v)
	second.writes(t)
	first.detach(t)
	second.writes(t)
	second.assertAttached(t)
	second.quiesce(t)
	second.detach(t)
	second.assertHolds(t)
	for _, g := range guests {
		g.assertSettled(t)
	}
}
