// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// TestStorageAThinPoolThatFillsIsSeenByDoctor, before it is full and afterwards.
func TestStorageAThinPoolThatFillsIsSeenByDoctor(t *testing.T) {
	storageDevice(t, walked[0])
	h := startHost(t)
	const poolBytes = 32 << 20
	lvm(t, "lvcreate", "--yes", "--size", "32M", "--errorwhenfull", "y", "--thinpool", "small-pool", "vg")
	t.Cleanup(func() { lvm(t, "lvremove", "--yes", "vg/small-pool") })
	lvm(t, "lvcreate", "--yes", "--virtualsize", "64M", "--thinpool", "small-pool", "--name", "filling", "vg")
	fill := func(bytes int64) error { return writeRandom("/dev/vg/filling", bytes) }
	want := func(status string, words ...string) {
		t.Helper()
		for _, c := range h.checks(t) {
			if c.Name == "thin pool vg/small-pool" {
				if c.Status != status {
					t.Errorf("doctor has %+v, want %s", c, status)
				}
				mustContain(t, c.Message+" "+c.Advice, words...)
				return
			}
		}
		t.Errorf("doctor says nothing of vg/small-pool: %+v", h.checks(t))
	}
	want("ok", "data 0.0%")
	if err := fill(poolBytes / 8 * 7); err != nil {
		t.Fatal(err)
	}
	want("warn", "data 87.5%", "lvextend --size")
	if err := fill(2 * poolBytes); err == nil {
		t.Fatal("the pool holds more than it has room for")
	}
	want("fail", "it has no room for data", "data 100.0%")
}

// TestStorageADeviceIsInItsPoolIfLibvirtKnowsIt, by whatever name it is adopted or moved to, so
// that a drain finds it, and the pool deletes it. Libvirt knows no thin volumes: they are in no
// pool, and are moved and grown by path.
func TestStorageADeviceIsInItsPoolIfLibvirtKnowsIt(t *testing.T) {
	h := storageHost(t)
	lvm(t, "lvcreate", "--yes", "--virtualsize", strconv.Itoa(volumeBytes)+"b", "--thinpool", "pool", "--name", "grown", "vg")
	t.Cleanup(func() { lvm(t, "lvremove", "--yes", "vg/grown") })
	if err := writeRandom("/dev/vg/grown", volumeBytes/4); err != nil {
		t.Fatal(err)
	}
	h.virsh(t, "pool-define-as", "lvm", "logical", "--source-name", "vg", "--target", "/dev/vg")
	h.virsh(t, "pool-start", "lvm")
	adopt := func(name, path string) api.Location {
		t.Helper()
		return get[api.Volume](t, h, "volume", "volume", "adopt", name, "--path", path, "--format", "raw").Location
	}
	if l := adopt("thick", "/dev/mapper/vg-thick2"); l.Pool != "lvm" || l.Name != "thick2" {
		t.Errorf("a logical volume is at %+v, want it in pool lvm", l)
	}
	h.ctl(t, "volume", "forget", "thick")
	if l := adopt("thin", "/dev/vg/grown"); l.Pool != "" {
		t.Errorf("a thin volume is at %+v, want it in no pool", l)
	}
	lvm(t, "lvextend", "--size", "128M", "vg/grown")
	h.ctl(t, "volume", "resize", "thin", "--size", "128MiB")
	v := get[api.Volume](t, h, "volume", "volume", "show", "thin")
	if v.SizeBytes != 128<<20 {
		t.Errorf("it has %d bytes", v.SizeBytes)
	}
	sum := sumOf(t, v.Location.Path)
	lvm(t, "lvcreate", "--yes", "--size", "128M", "--name", "made", "vg")
	const made = "/dev/vg/made"
	t.Cleanup(func() {
		if exists(t, made) {
			lvm(t, "lvremove", "--yes", "vg/made")
		}
	})
	h.ctl(t, "volume", "migrate", "thin", "--to-path", made)
	if l := get[api.Volume](t, h, "volume", "volume", "show", "thin").Location; l.Pool != "lvm" || l.Name != "made" {
		t.Errorf("a logical volume that it has moved to is at %+v, want it in pool lvm", l)
	}
	h.ctl(t, "volume", "migrate", "thin", "--to-pool", "b", "--delete-source")
	if exists(t, made) {
		t.Error("the logical volume is left")
	}
	if v = get[api.Volume](t, h, "volume", "volume", "show", "thin"); sumOf(t, v.Location.Path) != sum {
		t.Error("the move has changed the volume")
	}
	h.ctl(t, "volume", "delete", "thin", "--yes")
}

// writeRandom writes to the beginning of a device.
func writeRandom(device string, bytes int64) error {
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{3}), bytes)
	return errors.Join(err, f.Sync(), f.Close())
}

// lvm runs a command of LVM, also when the test has ended.
func lvm(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
}

// checks are what doctor says, whatever its exit status.
func (h *host) checks(t *testing.T) []api.Check {
	t.Helper()
	out, err := h.Ctl(t.Context(), "doctor", "-o", "json")
	var checks []api.Check
	if doc := unwrap(t, out, "checks"); json.Unmarshal(doc, &checks) != nil || len(checks) == 0 {
		t.Fatalf("doctor says %s (%v)", out, err)
	}
	return checks
}
