// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
	"github.com/volferry/volferry/test/site"
)

// guest is an instance on a host of a cluster.
type guest struct {
	*lab.Guest
	host  *site.Host
	disks []lab.Disk // that it was defined with
}

// load is a writer that leaves the machine some time for others.
var load = lab.Load{Interval: 10 * time.Millisecond, Depth: 2}

// guest defines and adopts an instance on a host, and starts it. Its root disk is in
// the pool local and of no further interest.
func (c *cluster) guest(t *testing.T, h *site.Host) *guest {
	t.Helper()
	c.guests++
	name := fmt.Sprintf("g%d", c.guests)
	root := lab.Disk{
		Volume: lab.Volume{Path: filepath.Join(localDir(h), name+"-root"), Format: "raw"},
		Seed:   uint64(1000 + c.guests), Fill: lab.Fill{Seed: uint64(1000 + c.guests), Percent: 5},
	}
	if err := lab.MakeVolume(t.Context(), root.Volume, 8<<20, root.Fill); err != nil {
		t.Fatal(err)
	}
	g := c.define(t, h, lab.GuestConfig{Name: name, Disks: []lab.Disk{root}})
	ctl(t, h.Caller, "instance", "adopt", name)
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Disks(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g
}

// bootable defines an instance that may leave its host. Its images are in dir, the
// directory of a pool: it boots from vda, by whose name root it then knows it, and
// its writer has the first half of vdb.
func (c *cluster) bootable(t *testing.T, h *site.Host, name, dir, root string) *guest {
	t.Helper()
	boot := lab.Disk{Volume: lab.Volume{Path: filepath.Join(dir, name+"-vda"), Format: "raw"}, Serial: "root"}
	if err := lab.MakeBootVolume(t.Context(), boot.Volume, lab.BootVolumeBytes, root); err != nil {
		t.Fatal(err)
	}
	data := lab.Disk{
		Volume: lab.Volume{Path: filepath.Join(dir, name+"-vdb"), Format: "raw"}, Serial: "data",
		Seed: 50, Fill: lab.Fill{Seed: 4711, Percent: 30}, Parts: 2,
	}
	if err := lab.MakeVolume(t.Context(), data.Volume, volumeBytes, data.Fill); err != nil {
		t.Fatal(err)
	}
	return c.define(t, h, lab.GuestConfig{Name: name, UEFI: true, Disks: []lab.Disk{boot, data}})
}

// localDir is the directory of a host's pool local.
func localDir(h *site.Host) string { return filepath.Join(h.Dir, "pool-"+localPool) }

// define defines a guest on a host, whose disks are in its pools.
func (c *cluster) define(t *testing.T, h *site.Host, cfg lab.GuestConfig) *guest {
	t.Helper()
	for _, pool := range []string{localPool, sharedPool} {
		if _, err := h.Libvirtd.Virsh(t.Context(), "pool-refresh", pool); err != nil {
			t.Fatal(err)
		}
	}
	g := newGuest(t, t, h.Libvirtd.Connection, cfg)
	g.host = h
	return g
}

// newGuest defines a guest at a libvirtd, which is removed when the test until, t or one
// that it is part of, ends.
func newGuest(t, until *testing.T, at *lab.Connection, cfg lab.GuestConfig) *guest {
	t.Helper()
	g, err := at.DefineGuest(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	until.Cleanup(func() {
		if err := g.Close(); err != nil {
			until.Error(err)
		}
	})
	return &guest{Guest: g, disks: cfg.Disks}
}

// startGuest defines a guest, which is removed when the test ends, starts it, and has it
// write to its vda.
func startGuest(t *testing.T, at *lab.Connection, cfg lab.GuestConfig) *guest {
	t.Helper()
	g := newGuest(t, t, at, cfg)
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.write(t, "vda")
	return g
}

// disk is a volume as the writers of guests know it.
type disk struct {
	api.Volume
	lab lab.Disk
}

// volume makes a filled volume of a type in a pool of a host, at whose socket the
// operator is.
func (c *cluster) volume(t *testing.T, h *site.Host, name, pool, typ string) disk {
	t.Helper()
	return c.volumeOf(t, h, name, pool, typ, volumeBytes)
}

// volumeOf is volume of this size. A large one is sparse.
func (c *cluster) volumeOf(t *testing.T, h *site.Host, name, pool, typ string, bytes int64) disk {
	t.Helper()
	v := get[api.Volume](t, h.Caller, "volume", "volume", "create", name, "--size", fmt.Sprint(bytes), "--pool", pool, "--type", typ)
	d := disk{Volume: v, lab: lab.Disk{
		Volume: lab.Volume{Path: v.Location.Path, Format: string(v.Location.Format)},
		Fill:   lab.Fill{Seed: 4711, Percent: 30},
	}}
	if bytes > volumeBytes {
		d.lab.Fill = lab.Fill{}
	}
	if err := lab.FillVolume(v.Location.Path, d.lab.Fill); err != nil {
		t.Fatal(err)
	}
	return d
}

// attach attaches a volume and waits until the guest has it. Its writer keeps to
// one of two halves of it. It returns the guest's name of the disk.
func (g *guest) attach(t *testing.T, at site.Caller, d disk, half uint64, flags ...string) string {
	t.Helper()
	ctl(t, at, append([]string{"volume", "attach", d.Name, g.Name}, flags...)...)
	seen, err := g.WaitDisk(t.Context(), d.ID)
	if err != nil {
		t.Fatal(err)
	}
	g.know(t, seen.Name, d, half)
	return seen.Name
}

// know gives the writer of a half of a volume its disk.
func (g *guest) know(t *testing.T, name string, d disk, half uint64) {
	t.Helper()
	k := d.lab
	k.Part, k.Parts, k.Seed = half, max(2, k.Parts), 50+half
	if err := g.AddDisk(t.Context(), name, k); err != nil {
		t.Fatal(err)
	}
}

// write has the guest write to a disk, and returns when it does.
func (g *guest) write(t *testing.T, disk string) {
	t.Helper()
	if err := g.Write(disk, load); err != nil {
		t.Fatal(err)
	}
	if err := g.WaitWriting(t.Context(), disk, 50); err != nil {
		t.Fatal(err)
	}
}

// quiesce stops the writer of a disk; all that it wrote is acknowledged.
func (g *guest) quiesce(t *testing.T, disk string) {
	t.Helper()
	if err := g.Quiesce(t.Context(), disk); err != nil {
		t.Fatal(err)
	}
}

// detach detaches a volume, whose guest must have let go of it then.
func (g *guest) detach(t *testing.T, at site.Caller, d disk) {
	t.Helper()
	ctl(t, at, "volume", "detach", d.Name, g.Name)
	if err := g.WaitNoDisk(t.Context(), d.ID); err != nil {
		t.Fatal(err)
	}
}

// assertHolds claims that the volume, which nobody writes to, holds in the half
// that a writer had every write that was acknowledged to it.
func assertHolds(t *testing.T, d disk, at api.Location, h *lab.History) {
	t.Helper()
	v := lab.Volume{Path: at.Path, Format: string(at.Format)}
	r, err := lab.Check(t.Context(), v, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err != nil {
		t.Errorf("volume %s at %s: %v", d.Name, at.Path, err)
	}
	if r.Acked == 0 {
		t.Errorf("volume %s: nothing was ever acknowledged", d.Name)
	}
	t.Logf("volume %s at %s: %d of %d acknowledged operations found, %d blocks wrong of %d", d.Name, at.Path, r.Found, r.Acked, r.Bad, r.Blocks)
}

// look returns the disks as the guest sees them.
func look(t *testing.T, g *guest) []workload.GuestDisk {
	t.Helper()
	disks, err := g.Disks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return disks
}
