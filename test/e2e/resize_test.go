// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
)

// grownBytes is what volumes of volumeBytes become.
const grownBytes = 2 * volumeBytes

func resizeArgs(volume string, bytes int) []string {
	return []string{"volume", "resize", volume, "--size", strconv.Itoa(bytes)}
}

// sees waits until the guest has its disk vda with this size.
func (g *guest) sees(t *testing.T, bytes int) {
	t.Helper()
	eventually(t, "the guest sees the new size", func() bool {
		disks, err := g.Disks(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(disks) > 0 && disks[0].Blocks == uint64(bytes/workload.BlockSize)
	})
}

// writesBeyond has the guest, which sees the new size, write to what was added to vda
// from now on. What it wrote before is returned: it has to stay as it is.
func (g *guest) writesBeyond(t *testing.T) (before *lab.History) {
	t.Helper()
	l := g.volume(t, "vda").Location
	return g.writesBeyondOn(t, lab.Volume{Path: l.Path, Format: string(l.Format)})
}

// writesBeyondOn is writesBeyond of a disk whose top is this image.
func (g *guest) writesBeyondOn(t *testing.T, top lab.Volume) (before *lab.History) {
	t.Helper()
	before = g.History("vda")
	before.Volume = grownBytes / workload.BlockSize
	if err := g.AddDisk(t.Context(), "vda", lab.Disk{Volume: top, Seed: g.disks[0].Seed + 1<<32, Part: 1, Parts: 2}); err != nil {
		t.Fatal(err)
	}
	g.write(t)
	return before
}

// stillHolds claims that the disk vda of a guest that is off holds what it held when the
// history ended.
func (g *guest) stillHolds(t *testing.T, before *lab.History) {
	t.Helper()
	l := g.volume(t, "vda").Location
	r, err := lab.Check(t.Context(), lab.Volume{Path: l.Path, Format: string(l.Format)}, before, lab.PowerWasCutAt(g.cuts...))
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		t.Errorf("what was in the volume before it grew: %v", err)
	}
}

// assertSize claims that registry, image and libvirt have the volume vda with this size.
func (g *guest) assertSize(t *testing.T, bytes int) {
	t.Helper()
	v := g.volume(t, "vda")
	if v.SizeBytes != int64(bytes) || v.Location.SizeBytes != int64(bytes) || v.SizeChangedAt == nil || v.Status != api.VolumeInUse || v.ResizeOpID != "" {
		t.Errorf("the registry has %+v", v)
	}
	info, err := exec.CommandContext(t.Context(), "qemu-img", "info", "-U", "-f", string(v.Location.Format), "--output", "json", v.Location.Path).Output()
	if err != nil {
		t.Fatal(err)
	}
	mustContain(t, string(info), `"virtual-size": `+strconv.Itoa(bytes))
	mustContain(t, g.host.virsh(t, "domblkinfo", g.Name, "vda"), strconv.Itoa(bytes))
}

func TestAVolumeGrowsUnderARunningGuestAndMovesWhole(t *testing.T) {
	for _, format := range []api.Format{api.FormatRaw, api.FormatQcow2} {
		t.Run(string(format), func(t *testing.T) {
			h, a, _ := sharedPools(t)
			g := h.runningGuest(t, h.diskIn(t, a, format))
			for range 2 { // the second time it has that size
				if v := get[api.Volume](t, h, "volume", resizeArgs(g.volumeName("vda"), grownBytes)...); v.SizeBytes != grownBytes {
					t.Errorf("the answer is %+v", v)
				}
				g.assertSize(t, grownBytes)
			}
			g.sees(t, grownBytes)
			h.refuses(t, api.CodeInvalidArgument, resizeArgs(g.volumeName("vda"), volumeBytes)...)
			g.quiesce(t)
			before := g.writesBeyond(t)

			m := g.migrate(t, "vda", "--to-pool", "b")
			if m.Dst.SizeBytes != grownBytes {
				t.Errorf("the destination has %d bytes", m.Dst.SizeBytes)
			}
			g.sees(t, grownBytes)
			g.assertSettled(t)
			g.stillHolds(t, before)
			if err := g.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			g.sees(t, grownBytes)
			g.destroy(t)
		})
	}
}

func TestAVolumeOfAStoppedGuestAndOneOfNobodyGrow(t *testing.T) {
	leftToTestE2E(t)
	for _, format := range []api.Format{api.FormatRaw, api.FormatQcow2} {
		t.Run(string(format), func(t *testing.T) {
			h, a, _ := sharedPools(t)
			free := h.adoptVolume(t, h.diskIn(t, a, format))
			if v := get[api.Volume](t, h, "volume", resizeArgs(free.name, grownBytes)...); v.SizeBytes != grownBytes || v.Status != api.VolumeAvailable {
				t.Errorf("the volume of nobody is %+v", v)
			}

			g := h.stoppedGuest(t, h.diskIn(t, a, format))
			h.ctl(t, resizeArgs(g.volumeName("vda"), grownBytes)...)
			g.assertSize(t, grownBytes)
			if err := g.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			g.sees(t, grownBytes)
			before := g.writesBeyond(t)
			g.assertSettled(t)
			g.stillHolds(t, before)
		})
	}
}

// A device is made larger where it was made, which no guest hears of by itself.
func TestADeviceThatWasExtendedIsToldToItsGuest(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	device := h.device(t, a, volumeBytes)
	g := h.runningGuest(t, h.diskOn(t, device))
	e := h.refuses(t, api.CodeUnsupportedDisk, resizeArgs(g.volumeName("vda"), grownBytes)...)
	mustContain(t, e.Message, device.Path, "lvextend")
	if err := os.Truncate(device.File, grownBytes); err != nil {
		t.Fatal(err)
	}
	tool(t, "losetup", "--set-capacity", device.Path)
	h.ctl(t, resizeArgs(g.volumeName("vda"), grownBytes)...)
	g.sees(t, grownBytes)
	g.quiesce(t)
	before := g.writesBeyond(t)
	g.assertSettled(t)
	g.stillHolds(t, before)
}

// The overlay of a move gets the new size, and dst has been made for the old one.
func TestADiskThatIsResizedWhileItMovesGoesBackAndMovesThenAsItIs(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	v := g.start(t, "vda", "--to-pool", "b")
	e := h.refuses(t, api.CodeMigrationActive, resizeArgs(g.volumeName("vda"), grownBytes)...)
	mustContain(t, e.Message, v.ID)

	h.virsh(t, "blockresize", g.Name, "vda", strconv.Itoa(grownBytes)+"B")
	g.sees(t, grownBytes)
	g.quiesce(t)
	before := g.writesBeyondOn(t, lab.Volume{Path: filepath.Join(h.Overlays(), v.ID+".qcow2"), Format: string(api.FormatQcow2)})
	v.copy(t)
	e = h.refuses(t, api.CodeSizeMismatch, v.completeArgs()...)
	mustContain(t, e.Message, strconv.Itoa(volumeBytes), strconv.Itoa(grownBytes), "migration cancel "+v.ID)
	v.cancel(t)
	g.sees(t, grownBytes)
	h.ctl(t, resizeArgs(g.volumeName("vda"), grownBytes)...) // what is there already is taken over at once
	g.assertSize(t, grownBytes)

	g.migrate(t, "vda", "--to-pool", "b")
	g.assertSettled(t)
	g.stillHolds(t, before)
}

// Somebody makes the source larger, which nobody writes to while its overlay takes the
// guest's writes.
func TestASourceThatGrowsWhileItMovesIsNotTakenForWhatWasFrozen(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	g := h.runningGuest(t, h.diskIn(t, a, api.FormatRaw))
	v := g.start(t, "vda", "--to-pool", "b")
	was, err := os.Stat(v.Src.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(v.Src.Path, grownBytes); err != nil {
		t.Fatal(err)
	}
	h.fails(t, api.ExitOpFailed, api.CodeSizeMismatch, v.copyArgs()...)
	h.fails(t, api.ExitOpFailed, api.CodeChainChanged, v.cancelArgs()...)
	// The way out of the page about recovery.
	if err := errors.Join(os.Truncate(v.Src.Path, volumeBytes), os.Chtimes(v.Src.Path, time.Time{}, was.ModTime())); err != nil {
		t.Fatal(err)
	}
	v.cancel(t)
	g.assertSettled(t)
}
