// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/location"
)

// promisesLeft are the slowest promises: those with several guests in turn, or a slow guest, and
// those for a special case of another promise. make test omits them, as it omits the tests with
// leftToTestConformance.
var promisesLeft = []string{
	"ABitmapEndsWithItsProcess",
	"ABitmapWithoutAWriteIsEmptyAndNotMissing",
	"ACopyOfADiskThatCannotHaveAnOverlayKeepsItsModes",
	"ADefinitionGivesTheOtherTheSameDisk",
	"ADefinitionMakesTheDomainAgain",
	"ADetachedDefinitionLeavesTheLiveDiskOpened",
	"ADiskDoesNotGrowUnderABlockJob",
	"ADiskIsTheBeginningOfALargerImage",
	"AJobDiesWithItsDomain",
	"APausedGuestAnswersWhenItRuns",
	"APausedGuestsDiskGrows",
	"AQcow2DiskGrows",
	"ARequestEndsWithItsProcess",
	"ASCSIDiskGoesWithoutItsGuest",
	"ASavedGuestGoesOnWithOtherImages",
	"ASharedImageStaysOpenForWhoeverHasItStill",
	"ASlotKeepsWhatTheGuestSeesOfADisk",
	"ASlotOfTheRunningDomainKeepsItsAddress",
	"ASwapIsMadeWholeOrNotAtAll",
	"AnAbortedCommitLeavesTheOverlayOn",
	"AnExportIsLeftForAnotherOne",
	"AttachToTheDefinitionWaitsForTheNextStart",
	"CopyToAnotherSizeComesToNothing",
	"DescriptionsChooseAddressesOnTheirOwn",
	"DetachOfWhatIsNotThereIsNoError",
	"FullCopyOfShareableDiskAndPivot",
	"PowerOffEndsTheProcessAtOnce",
	"PowerOnDoesNotTakeAnImageFromAnotherDomain",
	"RestoreSaysWhyNotAndTheDomainStaysOff",
	"SaveSaysWhyNotAndTheGuestGoesOn",
	"SavedDisksAreThoseThatTheProcessHad",
	"ShallowCopyToBlockDeviceAndPivot",
	"ShallowCopyToQcow2AndPivot",
	"TheLastUnitOfADiskMayBeShort",
	"TwoDomainsShareAnImageOnlyIfEveryWriterMay",
	"WhatIsStoppedIsGoneAndOthersBitmapsStay",
}

// viewsOfEach is how many tests use one libvirtd in parallel.
const viewsOfEach = 4

// The tests share two libvirtds, which take a while to start.
func TestConformanceOnRealLibvirt(t *testing.T) {
	noLeaks(t)
	both := []*realEnv{newRealEnv(t), newRealEnv(t)}
	views := slices.Concat(both[0].views(t, viewsOfEach), both[1].views(t, viewsOfEach))
	var left []string
	if testing.Short() {
		left = promisesLeft
	}
	hvtest.Conformance(t, views, "left to make test-conformance", left...)
	hvtest.AtOnce(t, views, map[string]func(*testing.T, *realEnv){
		"ADiskThatIsAwayKeepsItsPortOfPCIExpress":     testKeepsPort,
		"SetConfigChainKeepsWhatTheNounsDoNotKnow":    testKeepsUnknown,
		"SetConfigChainRefusesATransientDomain":       testTransient,
		"WriteLimitLeavesTheOwnersLimitsAlone":        testOwnersLimits,
		"ADiskComesBackWithEverySettingThatItHad":     testSettings,
		"AnImageStaysQEMUsWhileADomainHasIt":          testOwners,
		"AboutIsWhatVirshSays":                        testAbout,
		"MemoryThatLibvirtHasNotFinishedIsIncomplete": testUnfinished,
		"ASaveIsSeenByOthersThanItsCaller":            testSaving,
		"MemoryIsSavedPastThePageCache":               testPastCache,
		"ChannelsWriteMemoryWhereTheyCanAndReadIt":    testChannels,
		"MemoryThatOneStreamWroteIsRestored":          testOneStream,
		"TheDeletionOfAPoolsVolumeIsSynced":           testDeletionSynced,
		"ADiskOfAPoolsVolumeIsTheImage":               testPooled,
		"AProcessIsFoundBesideFalseClaimsOfAnyUser":   testFalseClaims,
		"ADiskOfAPoolThatIsNotActiveHasNoPath":        testPoolGone,
		"AReadOfABitmapThatWasCutOffIsInNobodysWay":   testDirtyLeftBehind,
	})
	// These tests observe or change the whole libvirtd.
	hvtest.AtOnce(t, both, map[string]func(*testing.T, *realEnv){
		"WhatACallChangesOfWhatLibvirtKeepsIsSynced": testKept,
		"HungLibvirtdIsNoticedAndGotOver":            testHung,
		"KilledLibvirtdIsNoticedAndGotOver":          testKilled,
	})
}

// define makes a domain with a disk vda on a new image.
func (e *realEnv) define(t *testing.T) (id string, src hv.Image) {
	t.Helper()
	src = hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: e.Path(t, "src.raw")}
	e.CreateImage(t, src.Path, src.Format, 1<<20)
	id = uuid.NewString()
	e.Define(t, hv.Domain{ID: id, Name: "real-" + id[:8], MemoryBytes: 32 << 20, Config: []hv.Disk{
		{Target: "vda", Bus: "virtio", Device: "disk", Chain: []hv.Image{src}},
	}})
	return id, src
}

func testKeepsUnknown(t *testing.T, env *realEnv) {
	id, src := env.define(t)
	backing := hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: "/no/such/file"}
	top := hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: src.Path}
	if err := env.conn.SetConfigChain(t.Context(), id, "vda", []hv.Image{top, backing}); err != nil {
		t.Fatal(err)
	}
	const want = "<blockio logical_block_size='512' physical_block_size='4096'/>"
	if doc := env.virsh(t, "dumpxml", "--inactive", id); !strings.Contains(doc, want) {
		t.Errorf("%s is gone from:\n%s", want, doc)
	}
}

func testTransient(t *testing.T, env *realEnv) {
	id, src := env.define(t)
	doc := env.virsh(t, "dumpxml", id)
	env.Start(t, id)
	env.virsh(t, "undefine", id)
	d, err := env.conn.Domain(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if d.Persistent || d.Config != nil || len(d.Live) != 1 {
		t.Errorf("transient domain = %+v", d)
	}
	if err := env.conn.SetConfigChain(t.Context(), id, "vda", []hv.Image{src}); !errors.Is(err, hv.ErrUnsupported) {
		t.Errorf("SetConfigChain = %v, want ErrUnsupported", err)
	}
	env.defineXML(t, "again", doc)
}

// testKeepsPort attaches more disks than there are ports while one disk is removed.
func testKeepsPort(t *testing.T, env *realEnv) {
	id := uuid.NewString()
	image := func(name string) hv.Image {
		img := hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: env.Path(t, name+".raw")}
		env.CreateImage(t, img.Path, img.Format, 1<<20)
		return img
	}
	var doc strings.Builder
	must(t, domainXML.Execute(&doc, hv.Domain{ID: id, Name: "real-" + id[:8], MemoryBytes: 32 << 20, Config: []hv.Disk{
		{Target: "vda", Bus: "virtio", Device: "disk", BootOrder: 1, Chain: []hv.Image{image("vda")}},
	}}))
	env.defineXML(t, "q35", strings.Replace(doc.String(), "machine='pc'", "machine='q35'", 1))
	t.Cleanup(func() { env.virsh(t, "undefine", id) })
	before, err := env.conn.Domain(t.Context(), id)
	must(t, err)
	slot, err := env.conn.DiskDefinition(t.Context(), id, hv.Config, "vda")
	must(t, err)
	must(t, env.conn.DetachDisk(t.Context(), id, hv.Config, "vda"))
	const disks = 6
	for n := 1; n <= disks; n++ {
		target := "vd" + string(rune('a'+n))
		must(t, env.conn.AttachDisk(t.Context(), id, hv.Config, hv.DiskSpec{
			Target: target, Bus: "virtio", Image: image(target), Reserved: []string{slot},
		}))
	}
	must(t, env.conn.AttachDisk(t.Context(), id, hv.Config, hv.DiskSpec{
		Target: "vda", Slot: slot, Image: before.Config[0].Top(),
	}))
	after, err := env.conn.Domain(t.Context(), id)
	must(t, err)
	if diff := cmp.Diff(before.ConfigDisk("vda"), after.ConfigDisk("vda")); diff != "" {
		t.Errorf("the disk that came back (-before +after):\n%s", diff)
	}
	env.Start(t, id)
	defer env.Destroy(t, id)
	running, err := env.conn.Domain(t.Context(), id)
	must(t, err)
	if diff := cmp.Diff(after.Config, running.Live); diff != "" || len(running.Live) != disks+1 {
		t.Errorf("started with %d disks (-definition +live):\n%s", len(running.Live), diff)
	}
}

func testOwnersLimits(t *testing.T, env *realEnv) {
	id, _ := env.define(t)
	env.virsh(t, "blkdeviotune", id, "vda", "--config", "--read-bytes-sec", "1000000", "--write-bytes-sec", "2000000")
	env.Start(t, id)
	for _, step := range []struct {
		set       func() error
		wantWrite string
	}{
		{func() error { return env.conn.PutWriteLimit(t.Context(), id, "vda", 1_500_000) }, "1500000"},
		{func() error { return env.conn.PutWriteLimit(t.Context(), id, "vda", 0) }, "0"},
	} {
		if err := step.set(); err != nil {
			t.Fatal(err)
		}
		got := strings.Fields(strings.ReplaceAll(env.virsh(t, "blkdeviotune", id, "vda", "--live"), ":", " "))
		for name, want := range map[string]string{"read_bytes_sec": "1000000", "write_bytes_sec": step.wantWrite} {
			if value := valueAfter(got, name); value != want {
				t.Errorf("%s = %s, want %s", name, value, want)
			}
		}
	}
}

func valueAfter(fields []string, name string) string {
	for i, field := range fields {
		if field == name && i+1 < len(fields) {
			return fields[i+1]
		}
	}
	return ""
}

func testHung(t *testing.T, env *realEnv) {
	const timeout = 10 * time.Second
	id, _ := env.define(t)
	conn := newConn(t, env.libvirtd, timeout)
	(&realEnv{conn: conn}).run(t)
	events := conn.Events(t.Context())
	await(t, events, hv.EventConnected)
	if err := env.libvirtd.Stop(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err := conn.Domain(t.Context(), id)
	if !errors.Is(err, hv.ErrUnavailable) {
		t.Errorf("Domain with a hung libvirtd = %v, want ErrUnavailable", err)
	}
	if took := time.Since(began); took > timeout+time.Second {
		t.Errorf("a hung libvirtd was noticed after %v, want %v", took, timeout)
	}
	await(t, events, hv.EventDisconnected)
	if conn.Up() {
		t.Error("Up() = true with a hung libvirtd")
	}
	if err := env.libvirtd.Cont(); err != nil {
		t.Fatal(err)
	}
	await(t, events, hv.EventConnected)
	if _, err := conn.Domain(t.Context(), id); err != nil {
		t.Errorf("after it went on: %v", err)
	}
}

func testKilled(t *testing.T, env *realEnv) {
	id, src := env.define(t)
	env.Start(t, id)
	events := env.conn.Events(t.Context())
	await(t, events, hv.EventConnected)
	if err := env.libvirtd.Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, events, hv.EventDisconnected)
	if err := env.conn.Suspend(t.Context(), id); !errors.Is(err, hv.ErrUnavailable) {
		t.Errorf("Suspend without libvirtd = %v, want ErrUnavailable", err)
	}
	files, err := env.conn.OpenFiles(t.Context(), id, src.Path)
	if err != nil || len(files) == 0 {
		t.Errorf("OpenFiles without libvirtd = %+v, %v: the kernel still knows", files, err)
	}
	if err := env.libvirtd.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	await(t, events, hv.EventConnected)
	d, err := env.conn.Domain(t.Context(), id)
	if err != nil || d.State != hv.StateRunning {
		t.Fatalf("Domain after the restart = %+v, %v", d, err)
	}
	// Events arrive on the new connection too.
	if err := env.conn.Suspend(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	await(t, events, hv.EventLifecycle)
}

// testSaving: a domain that was paused before looks the same while it is saved, and the caller of
// the save may be gone. It is saved into a pipe without a reader.
func testSaving(t *testing.T, env *realEnv) {
	id, _ := env.define(t)
	env.Start(t, id)
	must(t, env.conn.Suspend(t.Context(), id))
	saving := func() bool {
		is, err := env.conn.SavingMemory(t.Context(), id)
		must(t, err)
		return is
	}
	if saving() {
		t.Error("a domain that stands still is said to be saved")
	}
	pipe := filepath.Join(t.TempDir(), "memory")
	must(t, unix.Mkfifo(pipe, 0o600))
	r, err := os.OpenFile(pipe, os.O_RDWR, 0) // otherwise libvirtd would wait for a reader with the domain locked
	must(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := env.libvirtd.Virsh(t.Context(), "save", id, pipe)
		ended <- err
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !saving(); <-tick.C {
		if time.Since(began) > time.Minute {
			t.Fatal("a domain that is saved is not said to be")
		}
	}
	if d, err := env.conn.Domain(t.Context(), id); err != nil || d.State != hv.StatePaused {
		t.Errorf("meanwhile the domain is %+v (%v)", d, err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	t.Logf("libvirt, whose file is a pipe: %v", <-ended)
	must(t, r.Close())
	if saving() {
		t.Error("the save is over, and said to be under way")
	}
}

// testPastCache: a guest's RAM does not evict the cached data of others.
func testPastCache(t *testing.T, env *realEnv) {
	leftToTestConformance(t)
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_DIRECT, 0o600)
	if err != nil {
		t.Skipf("SKIPPED: the filesystem of %s has nothing past the page cache: %v", dir, err)
	}
	must(t, unix.Close(fd))
	id, _ := env.define(t)
	env.Start(t, id)
	file := filepath.Join(dir, "memory")
	must(t, env.conn.SaveMemory(t.Context(), id, file))
	cached, pages := inPageCache(t, file)
	t.Logf("%d of %d pages of the file are in the page cache", cached, pages)
	if cached > pages/2 {
		t.Errorf("%d of %d pages of the file are in the page cache", cached, pages)
	}
	must(t, env.conn.RestoreMemory(t.Context(), id, file, hv.RestoreOptions{}))
	// A file in memory is saved normally.
	const tmpfs = "/dev/shm"
	if inMemory, err := location.InMemory(tmpfs); err != nil || !inMemory {
		t.Skipf("SKIPPED: this machine has no tmpfs at %s (%v)", tmpfs, err)
	}
	own, err := os.MkdirTemp(tmpfs, "volferry-test-") //nolint:usetesting // a tmpfs
	must(t, err)
	defer func() { must(t, os.RemoveAll(own)) }()
	file = filepath.Join(own, "memory")
	must(t, env.conn.SaveMemory(t.Context(), id, file))
	must(t, env.conn.RestoreMemory(t.Context(), id, file, hv.RestoreOptions{}))
}

// testChannels: a file written by channels has a place for each page, according to its header, and
// channels read it. They bypass the page cache in releases with that feature.
func testChannels(t *testing.T, env *realEnv) {
	leftToTestConformance(t)
	about, err := env.conn.About(t.Context())
	must(t, err)
	dir, want := t.TempDir(), 0
	inMemory, err := location.InMemory(dir)
	must(t, err)
	if !inMemory && !about.Libvirt.Before(hv.Version{Major: 11, Minor: 2}) && !about.QEMU.Before(hv.Version{Major: 9, Minor: 1}) {
		want = min(runtime.NumCPU(), 8)
	}
	id, _ := env.define(t)
	env.Start(t, id)
	file := filepath.Join(dir, "memory")
	must(t, env.conn.SaveMemory(t.Context(), id, file))
	head := make([]byte, savedHead)
	f, err := os.Open(file)
	must(t, err)
	_, err = io.ReadFull(f, head)
	must(t, errors.Join(err, f.Close()))
	const sparse = 6 // QEMU_SAVE_FORMAT_SPARSE of libvirt's qemu_saveimage.h
	if format := binary.NativeEndian.Uint32(head[28:]); (format == sparse) != (want > 0) {
		t.Errorf("libvirt %v and QEMU %v wrote the file in format %d", about.Libvirt, about.QEMU, format)
	}
	t.Logf("libvirt %v, QEMU %v: %d channels", about.Libvirt, about.QEMU, want)
	must(t, env.conn.RestoreMemory(t.Context(), id, file, hv.RestoreOptions{}))
}

// savedHead is the length of the header of a saved-memory file: a word of 16 bytes, then numbers of
// four bytes: version, length of the definition, whether it ran, format.
const savedHead = 16 + 4*4

// testOneStream: a file from virsh.
func testOneStream(t *testing.T, env *realEnv) {
	leftToTestConformance(t)
	id, _ := env.define(t)
	env.Start(t, id)
	file := filepath.Join(t.TempDir(), "memory")
	env.virsh(t, "save", id, file)
	must(t, env.conn.RestoreMemory(t.Context(), id, file, hv.RestoreOptions{Paused: true}))
}

// inPageCache counts the pages of a file, and those in the page cache.
func inPageCache(t *testing.T, path string) (cached, pages int) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	st, err := f.Stat()
	must(t, err)
	content, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	must(t, err)
	defer func() { must(t, unix.Munmap(content)) }()
	is := make([]byte, (len(content)+os.Getpagesize()-1)/os.Getpagesize())
	if _, _, no := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&content[0])), uintptr(len(content)), uintptr(unsafe.Pointer(&is[0]))); no != 0 {
		t.Fatal(no)
	}
	for _, page := range is {
		cached += int(page & 1)
	}
	return cached, len(is)
}

// testUnfinished: the first word of a file shows whether libvirt has finished it.
func testUnfinished(t *testing.T, env *realEnv) {
	const whole, part = "LibvirtQemudSave", "LibvirtQemudPart"
	id, _ := env.define(t)
	env.Start(t, id)
	file := filepath.Join(t.TempDir(), "memory")
	must(t, env.conn.SaveMemory(t.Context(), id, file))
	text, err := os.ReadFile(file)
	must(t, err)
	if !strings.HasPrefix(string(text), whole) {
		t.Fatalf("a file that is whole begins with %q", text[:len(whole)])
	}
	must(t, os.WriteFile(file, append([]byte(part), text[len(part):]...), 0o600))
	if disks, err := env.conn.SavedDisks(t.Context(), id, file); !errors.Is(err, hv.ErrIncomplete) {
		t.Errorf("SavedDisks = %v, %v, want ErrIncomplete", disks, err)
	}
	if err := env.conn.RestoreMemory(t.Context(), id, file, hv.RestoreOptions{}); !errors.Is(err, hv.ErrIncomplete) {
		t.Errorf("RestoreMemory = %v, want ErrIncomplete", err)
	}
}
