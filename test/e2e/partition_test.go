// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/kinds"
	"github.com/volferry/volferry/test/lab"
)

const (
	sectorBytes   = 512
	volumeSectors = volumeBytes / sectorBytes
	firstSector   = 1 << 20 / sectorBytes // of a first partition, as tools choose it
)

// partition is one of a loop device. The kernel is told of it without a table: not every kernel
// reads one.
type partition struct {
	disk           *lab.Loop
	number         int
	start, sectors int64
	// elsewhere is the first sector of another partition that can have the number.
	elsewhere int64
	// ownNode: the test has made the device's node.
	ownNode bool
}

// partition makes a partition of a device of h.device.
func (h *host) partition(t *testing.T, disk *lab.Loop, number int, start, sectors int64) *partition {
	t.Helper()
	p := &partition{disk: disk, number: number, start: start, sectors: sectors, elsewhere: start + sectors}
	p.add(t, start)
	t.Cleanup(func() {
		p.remove(t)
		if err := h.forgetVolumeAt(context.WithoutCancel(t.Context()), p.path()); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *partition) path() string { return fmt.Sprintf("%sp%d", p.disk.Path, p.number) }

// end is the first sector behind it.
func (p *partition) end() int64 { return p.start + p.sectors }

func (p *partition) add(t *testing.T, start int64) {
	t.Helper()
	tool(t, "addpart", p.disk.Path, strconv.Itoa(p.number), fmt.Sprint(start), fmt.Sprint(p.sectors))
	if p.ownNode = !exists(t, p.path()); p.ownNode {
		p.makeNode(t)
	}
}

// makeNode makes the device's node. The kernel does that on a host, and not on a machine of
// test/machine, with a /dev that is no devtmpfs.
func (p *partition) makeNode(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/sys/class/block", filepath.Base(p.path()), "dev"))
	if err != nil {
		t.Fatal(err)
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(string(text), "%d:%d", &major, &minor); err != nil {
		t.Fatalf("the number of %s is %q: %v", p.path(), text, err)
	}
	if err := unix.Mknod(p.path(), unix.S_IFBLK|0o660, int(unix.Mkdev(major, minor))); err != nil {
		t.Fatal(err)
	}
}

// remove has the kernel forget it, once nobody has it open: udev looks at what is new.
func (p *partition) remove(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	eventually(t, p.path()+" is removed", func() bool {
		return exec.CommandContext(ctx, "delpart", p.disk.Path, strconv.Itoa(p.number)).Run() == nil
	})
	if p.ownNode {
		if err := os.Remove(p.path()); err != nil {
			t.Error(err)
		}
	}
}

func (p *partition) whileAnother(t *testing.T, do func()) {
	t.Helper()
	p.remove(t)
	p.add(t, p.elsewhere)
	do()
	p.remove(t)
	p.add(t, p.start)
}

func (p *partition) identities() []string {
	at := func(start int64) string {
		return fmt.Sprintf("partition %d at sector %d of loop %s ", p.number, start, p.disk.File)
	}
	return []string{at(p.start), at(p.elsewhere)}
}

// isPartition reports whether a path leads to a partition.
func isPartition(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join("/sys/class/block", filepath.Base(deviceNode(t, path)), "partition"))
	return err == nil
}

// sumBetween is the sum of what a file has from one sector to another.
func sumBetween(t *testing.T, file string, from, to int64) string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return sumOfAll(t, io.NewSectionReader(f, from*sectorBytes, (to-from)*sectorBytes))
}

func TestAPartitionWhoseNumberIsAnothersByNowIsNeitherReadNorWritten(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	number := 0
	one := func() *partition {
		number++
		return h.partition(t, h.device(t, a, (firstSector+2*volumeSectors)*sectorBytes), number, firstSector, volumeSectors)
	}
	src, dst := one(), one()
	g := h.stoppedGuest(t, h.diskOn(t, &lab.Loop{Path: src.path()}))
	v := g.start(t, "vda", "--to-path", dst.path())
	v.copiesAndRefusesOthers(t, src, dst)
	v.complete(t)
	for _, p := range []*partition{src, dst} {
		if sumBetween(t, p.disk.File, p.elsewhere, p.elsewhere+p.sectors) != sumOfZeros(t, t.TempDir()) {
			t.Errorf("what had the name %s meanwhile was written", p.path())
		}
	}
	g.assertSettled(t)
}

func TestAPartitionOfARunningGuestIsMovedToTheBeginningOfALargerOneAndBack(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	disk := h.device(t, a, (firstSector+3*volumeSectors)*sectorBytes)
	first := h.partition(t, disk, 1, firstSector, volumeSectors)
	second := h.partition(t, disk, 2, first.end(), volumeSectors+8) // in whole pages, which putEnd writes
	putEnd(t, second.path())
	g := h.runningGuest(t, h.diskOn(t, &lab.Loop{Path: first.path()}))
	isBeginningOf(t, g.migrate(t, "vda", "--to-path", second.path()), second.path(), second.sectors*sectorBytes)
	v := g.start(t, "vda", "--to-path", first.path())
	v.copy(t)
	g.writes(t)
	v.cancel(t)
	g.assertSettledAndGoOn(t)
	g.migrate(t, "vda", "--to-path", first.path())
	endIsLeft(t, second.path())
	g.assertSettled(t)
}

// Neither the beginning of the partitions nor their size is a multiple of 4096 bytes.
func TestAPartitionOfAnUnevenSizeIsMovedToAnotherAndWhatIsAroundThemStays(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	const (
		start   = 63 // as old tools chose it
		sectors = 8<<20/sectorBytes + 1
	)
	diskBytes := int64(20 << 20)
	disk := h.device(t, a, diskBytes)
	if err := writeRandom(disk.Path, diskBytes); err != nil {
		t.Fatal(err)
	}
	src := h.partition(t, disk, 1, start, sectors)
	dst := h.partition(t, disk, 2, src.end()+1, sectors)
	around := func() []string {
		return []string{
			sumBetween(t, disk.File, 0, src.start), sumBetween(t, disk.File, src.end(), dst.start), sumBetween(t, disk.File, dst.end(), diskBytes/sectorBytes),
		}
	}
	before, sum := around(), sumOf(t, src.path())
	v := h.adoptVolume(t, lab.Disk{Volume: lab.Volume{Path: src.path(), Format: "raw"}})
	h.noteMove(t, get[api.Migration](t, h, "migration", "volume", "migrate", v.name, "--to-path", dst.path()), kinds.NoGuest)
	if l := v.show(t).Location; !identifiedAt(l, api.Location{Path: dst.path(), Format: api.FormatRaw, SizeBytes: sectors * sectorBytes}) || sumOf(t, l.Path) != sum {
		t.Errorf("the volume is at %+v, or has changed", l)
	}
	if diff := cmp.Diff(before, around()); diff != "" {
		t.Errorf("what is around the partitions (-before +after):\n%s", diff)
	}
}

// QEMU claims no device, so the kernel lets others write to the disk of a partition that a guest
// has, and to the file of its device.
func TestADeviceOfWhichAPartIsAVolumeOrADiskOfAGuestIsNotWritten(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	deviceBytes := int64((firstSector + 2*volumeSectors) * sectorBytes)
	disk := h.device(t, a, deviceBytes)
	mine, free := h.partition(t, disk, 1, firstSector, volumeSectors), h.partition(t, disk, 2, firstSector+volumeSectors, volumeSectors)
	if err := writeRandom(disk.Path, deviceBytes); err != nil {
		t.Fatal(err)
	}
	sum := sumBetween(t, disk.File, 0, deviceBytes/sectorBytes)
	other := h.adoptVolume(t, h.diskIn(t, a, api.FormatRaw))
	refused := func(why string, code api.Code, volume *volume, path, says string) {
		t.Helper()
		said := h.refuses(t, code, "volume", "migrate", volume.name, "--to-path", path, "--yes").Message
		mustContain(t, said, says)
		if sumBetween(t, disk.File, 0, deviceBytes/sectorBytes) != sum {
			t.Fatalf("%s: it was written (%s)", why, said)
		}
	}

	at := lab.Disk{Volume: lab.Volume{Path: mine.path(), Format: "raw"}}
	name := fmt.Sprintf("stranger%d", h.number())
	stranger, err := h.Libvirtd.DefineGuest(t.Context(), lab.GuestConfig{Name: name, Disks: []lab.Disk{at}})
	if err != nil {
		t.Fatal(err)
	}
	refused("a domain that was not adopted has its partition", api.CodeDstInUse, other, disk.Path, "is disk vda of instance "+name)
	if err := stranger.Close(); err != nil {
		t.Fatal(err)
	}

	v := h.adoptVolume(t, at)
	refused("its partition is a volume", api.CodeDstInUse, other, disk.Path, "shares bytes with "+mine.path()+", which is volume "+v.name)
	refused("the device is the volume's own", api.CodeSameLocation, v, disk.Path, "shares bytes with")
	mustContain(t, h.refuses(t, api.CodeConflict, "volume", "adopt", "whole", "--path", disk.Path, "--format", "raw").Message, "shares bytes with "+mine.path())
	h.noteMove(t, get[api.Migration](t, h, "migration", "volume", "migrate", v.name, "--to-path", free.path(), "--yes"), kinds.NoGuest)
}
