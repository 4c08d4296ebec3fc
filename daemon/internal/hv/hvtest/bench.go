// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// Env is a hypervisor with its surroundings for the suite. Its methods fail the test on any error,
// and remove everything that they made at the end of the test.
type Env interface {
	// Hypervisor is the connected implementation under test.
	Hypervisor() hv.Hypervisor
	// Path returns an unused path for an image.
	Path(tb testing.TB, name string) string
	// CreateImage makes an empty image, CreateOverlay an empty qcow2 image on top of another.
	CreateImage(tb testing.TB, path, format string, sizeBytes int64)
	CreateOverlay(tb testing.TB, path string, backing hv.Image, sizeBytes int64)
	// BlockDevice returns a block device of this size, or skips the test.
	BlockDevice(tb testing.TB, sizeBytes int64) string
	// CreateOnDevice makes an empty qcow2 image on a block device, over any existing content.
	CreateOnDevice(tb testing.TB, path string, sizeBytes int64)
	// AddBitmap makes a recording dirty bitmap in a qcow2 image that no process has open.
	AddBitmap(tb testing.TB, path, name string)
	// DisableBitmap stops the recording of a bitmap.
	DisableBitmap(tb testing.TB, path, name string)
	// Export returns a raw image of this size on an NBD server at a Unix socket.
	Export(tb testing.TB, sizeBytes int64) hv.Image
	// WriteImage writes a block into an image that no process has open.
	WriteImage(tb testing.TB, img hv.Image, block int64, value byte)
	// CheckImage fails the test if a block of an image without writers does not hold value.
	CheckImage(tb testing.TB, img hv.Image, block int64, value byte)

	// Define makes a persistent domain from d's ID, Name, MemoryBytes and Config. A test that
	// removes the definition has to define the domain again.
	Define(tb testing.TB, d hv.Domain)
	Start(tb testing.TB, id string)
	Destroy(tb testing.TB, id string)
	// GuestWrite writes a block through the live disk, CheckGuest reads one and compares.
	GuestWrite(tb testing.TB, id, target string, block int64, value byte)
	CheckGuest(tb testing.TB, id, target string, block int64, value byte)

	// LetGo makes the guest release a live disk after DetachDisk; the guest keeps it until then.
	// LetGo may reset the machine.
	LetGo(tb testing.TB, id, target string)

	// BeginBackup starts a backup of the live disk, as virsh backup-begin does, without a reader.
	// It lasts until end is called, or the domain is off.
	BeginBackup(tb testing.TB, id, target string) (end func())

	// Refuse makes the host's hook refuse every start of a domain, with the reason why, until
	// allow is called or the test ends.
	Refuse(tb testing.TB, id, why string) (allow func())
	// RefuseWithout makes the hook refuse every start of the domain except with a definition that
	// has this start token, until the end of the test or the next such call.
	RefuseWithout(tb testing.TB, id, token string)

	// Pool returns the name of an active directory pool.
	Pool(tb testing.TB) string
}

const diskBytes = 8 << 20

const memoryBytes = 32 << 20

const waitTimeout = time.Minute

type bench struct {
	Env
	hv hv.Hypervisor
}

// guest is one running domain with a disk vda on src, and a disk vdb and a drive that must not
// change.
type guest struct {
	*bench
	id  string
	src hv.Image
}

// putOverlay calls Snapshot, and returns an error if Snapshot reports a time of 0.
func (b *bench) putOverlay(ctx context.Context, id, target string, overlay hv.Image) error {
	held, err := b.hv.Snapshot(ctx, id, target, overlay)
	if err == nil && held <= 0 {
		return fmt.Errorf("writes were held back for %s", held)
	}
	return err
}

func (b *bench) image(t *testing.T, name, format string) hv.Image {
	t.Helper()
	img := hv.Image{Type: hv.SourceFile, Format: format, Path: b.Path(t, name)}
	b.CreateImage(t, img.Path, format, diskBytes)
	return img
}

func (b *bench) overlay(t *testing.T, backing hv.Image) hv.Image {
	t.Helper()
	return b.over(t, "overlay.qcow2", backing)
}

func (b *bench) over(t *testing.T, name string, backing hv.Image) hv.Image {
	t.Helper()
	img := hv.Image{Type: hv.SourceFile, Format: Qcow2, Path: b.Path(t, name)}
	b.CreateOverlay(t, img.Path, backing, diskBytes)
	return img
}

func (b *bench) define(t *testing.T, edit func(*hv.Disk), chain ...hv.Image) string {
	t.Helper()
	id := uuid.NewString()
	disk := hv.Disk{
		Target: "vda", Bus: "virtio", Device: "disk", Serial: "serial-of-vda", BootOrder: 1,
		Cache: "none", Discard: "unmap", ErrorPolicy: "stop", Chain: chain, Terminated: true,
	}
	if edit != nil {
		edit(&disk)
	}
	b.Define(t, hv.Domain{
		ID:          id,
		Name:        "conf-" + id[:8],
		MemoryBytes: memoryBytes,
		Config: []hv.Disk{
			disk,
			{
				Target: "vdb", Bus: "virtio", Device: "disk", Terminated: true,
				Chain: []hv.Image{b.image(t, "other.raw", Raw)},
			},
			{Target: "hda", Bus: "ide", Device: "cdrom", ReadOnly: true},
		},
	})
	return id
}

func (b *bench) start(t *testing.T) *guest {
	t.Helper()
	src := b.image(t, "src.raw", Raw)
	b.WriteImage(t, src, 0, 1)
	id := b.define(t, nil, src)
	b.Start(t, id)
	return &guest{bench: b, id: id, src: src}
}

func (g *guest) snapshot(t *testing.T, blocks ...int64) hv.Image {
	t.Helper()
	overlay := g.overlay(t, g.domain(t).LiveDisk("vda").Top())
	ok(t, g.putOverlay(t.Context(), g.id, "vda", overlay))
	for _, block := range blocks {
		g.GuestWrite(t, g.id, "vda", block, 2)
	}
	return overlay
}

func (g *guest) domain(t *testing.T) *hv.Domain {
	t.Helper()
	return g.read(t, g.id)
}

func (b *bench) read(t *testing.T, id string) *hv.Domain {
	t.Helper()
	d, err := b.hv.Domain(t.Context(), id)
	ok(t, err)
	return d
}

func (g *guest) wantLive(t *testing.T, chain ...hv.Image) {
	t.Helper()
	disk := g.domain(t).LiveDisk("vda")
	if diff := cmp.Diff(chain, disk.Chain); diff != "" {
		t.Errorf("live chain (-want +got):\n%s", diff)
	}
	if !disk.Terminated {
		t.Error("the live chain does not state its end")
	}
}

func (g *guest) wantConfig(t *testing.T, chain ...hv.Image) {
	t.Helper()
	if diff := cmp.Diff(chain, g.domain(t).ConfigDisk("vda").Chain); diff != "" {
		t.Errorf("persistent chain (-want +got):\n%s", diff)
	}
}

func (g *guest) openFor(t *testing.T, img hv.Image) string {
	t.Helper()
	files, err := g.hv.OpenFiles(t.Context(), g.id, img.Path)
	ok(t, err)
	how := ""
	for _, f := range files {
		if f.Writable {
			return "w"
		}
		how = "r"
	}
	return how
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	timeout := time.After(waitTimeout)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !condition() {
		select {
		case <-look.C:
		case <-timeout:
			t.Fatalf("still not after %v: %s", waitTimeout, what)
		}
	}
}

func bystanders(disks []hv.Disk) []hv.Disk {
	return slices.DeleteFunc(slices.Clone(disks), func(d hv.Disk) bool { return d.Target == "vda" })
}
