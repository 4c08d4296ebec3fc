// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/kinds"
	"github.com/volferry/volferry/test/lab"
)

// walked are the variables of devices, one or more of each kind.
var walked = []string{"THIN", "THICK", "MULTIPATH", "NVME", "LARGER"}

// onStorage is whether the tests run in such a machine: QEMU emulates it, and it emulates the
// guests once more.
func onStorage() bool { return os.Getenv(walked[0]) != "" }

// storageDevice is a device of the machine with storage.
func storageDevice(t *testing.T, kind string) string {
	t.Helper()
	path := os.Getenv(kind)
	if path == "" {
		t.Skipf("SKIPPED: there is no device %s here; make test-storage makes machines that have it", kind)
	}
	return path
}

// ofThisMachine are the devices that the machine with storage has. Only an emulated machine has
// NVMe over TCP.
func ofThisMachine(t *testing.T, variables []string) (has []string) {
	t.Helper()
	for _, variable := range variables {
		if os.Getenv(variable) == "" {
			t.Log("without", variable)
			continue
		}
		has = append(has, variable)
	}
	return has
}

func TestStorageAGuestWritesWhileItMovesFromEachKindToTheNext(t *testing.T) {
	g := storageGuest(t)
	walked := ofThisMachine(t, walked)
	for _, kind := range walked {
		g.migrate(t, "vda", "--to-path", storageDevice(t, kind))
		t.Log("moved to", kind)
	}
	v := g.start(t, "vda", "--to-path", storageDevice(t, "THICK2"))
	v.copy(t)
	v.cancel(t)
	t.Log("cancelled, from LARGER to THICK2")
	network := walked[len(walked)-2]
	v = g.start(t, "vda", "--to-path", storageDevice(t, network), "--bandwidth", "4MiB/s")
	v.copyThroughDeath(t)
	v.finish(t)
	t.Logf("moved to %s, by a daemon that was killed in the copy", network)
	g.migrate(t, "vda", "--to-pool", "b", "--to-format", "qcow2")
	g.assertSettled(t)
}

// halfZeros fills the front of a volume that is half zeros: its data are the first quarter, and
// a page here and there behind it.
func halfZeros(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	data := rand.NewChaCha8([32]byte{1})
	if _, err := io.CopyN(f, data, volumeBytes/4); err != nil {
		t.Fatal(err)
	}
	for at := int64(volumeBytes / 2); at < volumeBytes; at += volumeBytes / 8 {
		if _, err := io.CopyN(io.NewOffsetWriter(f, at+4096), data, 4096); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(volumeBytes); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// randomFile makes a file of which no block is zeros.
func randomFile(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(f, rand.NewChaCha8([32]byte{2}), volumeBytes); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// thinBytes is how much of its pool a thin volume takes.
func thinBytes(t *testing.T, device string) int64 {
	t.Helper()
	percent, err := exec.CommandContext(t.Context(), "lvs", "--noheadings", "-o", "data_percent", device).Output()
	if err != nil {
		t.Fatal(err)
	}
	share, err := strconv.ParseFloat(strings.TrimSpace(string(percent)), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(share / 100 * volumeBytes)
}

// sumOfVolume is the sum of the volume at the beginning of a file or device.
func sumOfVolume(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return sumOfAll(t, io.NewSectionReader(f, 0, volumeBytes))
}

func TestStorageAVolumeOfNoInstanceMovesFromEachKindToEach(t *testing.T) {
	h := storageHost(t)
	file := filepath.Join(h.poolA, "plain.raw")
	halfZeros(t, file)
	sum := sumOfVolume(t, file)
	v := h.adoptVolume(t, lab.Disk{Volume: lab.Volume{Path: file, Format: "raw"}})
	at := "a file"
	move := func(kind string, flags ...string) {
		t.Helper()
		device := storageDevice(t, kind)
		m := get[api.Migration](t, h, "migration", append([]string{"volume", "migrate", v.name, "--to-path", device}, flags...)...)
		if m.State != api.MigrationCompleted || m.Dst.Path != device || m.Dst.SizeBytes != volumeBytes {
			t.Fatalf("the move from %s to %s ended as %+v", at, kind, m)
		}
		h.noteMove(t, m, kinds.NoGuest)
		if sumOfVolume(t, device) != sum {
			t.Fatalf("the move from %s to %s has changed the volume", at, kind)
		}
		at = kind
	}
	walked := ofThisMachine(t, walked)
	// Every ordered pair, in one walk.
	for i, a := range walked {
		for _, b := range walked[i+1:] {
			if at != a {
				move(a)
			}
			move(b)
		}
		move(a)
	}
	move("THIN2")
	device := storageDevice(t, "THIN2")
	if bytes := thinBytes(t, device); bytes > volumeBytes/2 {
		t.Errorf("a volume with %d bytes of data takes %d of its thin pool", volumeBytes/4, bytes)
	}
	move("THICK")
	// A thin volume that was full of another volume's bytes is thin again.
	full := filepath.Join(h.poolA, "full.raw")
	randomFile(t, full)
	other := h.adoptVolume(t, lab.Disk{Volume: lab.Volume{Path: full, Format: "raw"}})
	h.noteMove(t, get[api.Migration](t, h, "migration", "volume", "migrate", other.name, "--to-path", device, "--yes"), kinds.NoGuest)
	if bytes := thinBytes(t, device); bytes < volumeBytes {
		t.Fatalf("a thin volume that is full takes %d bytes", bytes)
	}
	h.noteMove(t, get[api.Migration](t, h, "migration", "volume", "migrate", other.name, "--to-pool", "b"), kinds.NoGuest)
	move("THIN2", "--yes") // which is the way back of the other volume
	if bytes := thinBytes(t, device); bytes > volumeBytes/2 {
		t.Errorf("a volume with %d bytes of data takes %d of its thin pool, which was full of others before", volumeBytes/4, bytes)
	}
	h.virsh(t, "pool-define-as", "rounding", "logical", "--source-name", "rounding", "--target", "/dev/rounding")
	h.virsh(t, "pool-start", "rounding")
	h.noteMove(t, get[api.Migration](t, h, "migration", "volume", "migrate", v.name, "--to-pool", "rounding"), kinds.NoGuest)
	if l := v.show(t).Location; l.SizeBytes != volumeBytes || l.ImageBytes != 96<<20 || sumOfVolume(t, l.Path) != sum {
		t.Errorf("in a pool with extents of 48 MiB the volume is at %+v, or has changed", l)
	} else if uuid := saysOfItself(t, l.Path, "dm/uuid"); !strings.Contains(l.Identity, uuid) {
		t.Errorf("right after the move the registry has the logical volume %s as %q", uuid, l.Identity)
	}
	if left := h.virsh(t, "vol-list", "rounding"); strings.Contains(left, "volferry-extent") {
		t.Errorf("what asked for the extents is left: %s", left)
	}
	h.noteMove(t, get[api.Migration](t, h, "migration", "volume", "migrate", v.name, "--to-pool", "b"), kinds.NoGuest)
	if sumOfVolume(t, v.show(t).Location.Path) != sum {
		t.Error("the move to a pool has changed the volume")
	}
}
