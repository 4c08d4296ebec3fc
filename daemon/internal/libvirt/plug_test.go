// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/test/lab"
)

// The suite's domains have no operating system that would release a disk. These have one, and a
// program that writes to the disk.
func TestDisksComeToAndLeaveGuestsThatRun(t *testing.T) {
	leftToTestConformance(t)
	noLeaks(t)
	env := newRealEnv(t)
	for _, machine := range []string{"pc", "q35"} {
		t.Run(machine, func(t *testing.T) {
			g := env.bootGuest(t, machine)
			for n, how := range []plugged{{}, {paused: true}, {writing: true}} {
				testPlug(t, env, g, fmt.Sprintf("%s-plugged-%d", machine, n), how)
			}
			testFullMachine(t, env, g, machine)
		})
	}
}

// bootGuest returns when the guest has its first disk.
func (e *realEnv) bootGuest(t *testing.T, machine string) *lab.Guest {
	t.Helper()
	root := lab.Volume{Path: filepath.Join(e.dir, machine+"-root.raw"), Format: hvtest.Raw}
	e.CreateImage(t, root.Path, root.Format, 64<<20)
	g, err := e.libvirtd.DefineGuest(t.Context(), lab.GuestConfig{
		Name: machine, Machine: machine, Disks: []lab.Disk{{Volume: root, Serial: "root"}},
	})
	must(t, err)
	t.Cleanup(func() { must(t, g.Close()) })
	must(t, g.Start(t.Context()))
	_, err = g.WaitDisk(t.Context(), "root")
	must(t, err)
	return g
}

// plugged is the state of a guest when a disk is attached and removed.
type plugged struct {
	paused  bool // paused during the request
	writing bool // it writes when the disk is removed
}

// testPlug attaches a disk, lets the guest write, and removes the disk.
func testPlug(t *testing.T, env *realEnv, g *lab.Guest, serial string, how plugged) {
	t.Helper()
	ctx := t.Context()
	whilePaused := func(do func()) {
		if how.paused {
			must(t, env.conn.Suspend(ctx, g.UUID))
		}
		do()
		must(t, env.conn.Resume(ctx, g.UUID))
	}
	vol := lab.Volume{Path: filepath.Join(env.dir, serial+".raw"), Format: hvtest.Raw}
	disk := lab.Disk{Volume: vol, Seed: 7, Fill: lab.Fill{Seed: 7, Percent: 10}}
	must(t, lab.MakeVolume(ctx, vol, 32<<20, disk.Fill))
	whilePaused(func() {
		must(t, env.conn.AttachDisk(ctx, g.UUID, hv.Live, hv.DiskSpec{
			Target: "vdb", Bus: "virtio", Serial: serial,
			Image: hv.Image{Type: hv.SourceFile, Format: vol.Format, Path: vol.Path},
		}))
	})
	seen, err := g.WaitDisk(ctx, serial)
	must(t, err)
	must(t, g.AddDisk(ctx, seen.Name, disk))
	must(t, g.Write(seen.Name, lab.Load{Interval: time.Millisecond, Depth: 4}))
	must(t, g.WaitWriting(ctx, seen.Name, 200))
	if !how.writing {
		must(t, g.Quiesce(ctx, seen.Name))
	}

	events := env.conn.Events(ctx)
	whilePaused(func() {
		must(t, env.conn.DetachDisk(ctx, g.UUID, hv.Live, "vdb"))
		if !how.paused {
			return
		}
		must(t, env.conn.DetachDisk(ctx, g.UUID, hv.Live, "vdb")) // requested again
		if d, err := env.conn.Domain(ctx, g.UUID); err != nil || d.LiveDisk("vdb") == nil {
			t.Errorf("a paused guest let go of its disk: %+v, %v", d, err)
		}
	})
	await(t, events, hv.EventDeviceRemoved)
	must(t, g.WaitNoDisk(ctx, serial))
	d, err := env.conn.Domain(ctx, g.UUID)
	must(t, err)
	if d.LiveDisk("vdb") != nil {
		t.Errorf("the domain still has the disk that its guest let go of")
	}
	if how.writing { // only the requests in flight have failed
		must(t, g.Quiesce(ctx, seen.Name))
	}
	r, err := lab.Check(ctx, vol, g.History(seen.Name))
	must(t, err)
	must(t, r.Err())
	if diff := cmp.Diff([]string(nil), g.History(seen.Name).Errors); diff != "" && !how.writing {
		t.Errorf("operations failed in the guest (-want +got):\n%s", diff)
	}
}

// testFullMachine attaches disks until the machine has no place for another.
func testFullMachine(t *testing.T, env *realEnv, g *lab.Guest, machine string) {
	t.Helper()
	const most = 40
	for n := 1; ; n++ {
		target := "vd" + string(rune('a'+n))
		if n >= 26 {
			target = "vda" + string(rune('a'+n-26))
		}
		path := filepath.Join(env.dir, fmt.Sprintf("%s-%d.raw", machine, n))
		env.CreateImage(t, path, hvtest.Raw, 1<<20)
		err := env.conn.AttachDisk(t.Context(), g.UUID, hv.Live, hv.DiskSpec{
			Target: target, Bus: "virtio", Image: hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: path},
		})
		if errors.Is(err, hv.ErrUnsupported) {
			t.Logf("%s took %d disks more", machine, n-1)
			if machine == "q35" {
				testNoPortIsAdded(t, env, g, path)
			}
			return
		}
		if err != nil || n == most {
			t.Fatalf("disk %d: AttachDisk = %v, want ErrUnsupported at some time", n, err)
		}
	}
}

// A port that libvirt adds to the definition of a guest without free ports would stay there.
func testNoPortIsAdded(t *testing.T, env *realEnv, g *lab.Guest, path string) {
	t.Helper()
	before := env.virsh(t, "dumpxml", "--inactive", g.UUID)
	err := env.conn.AttachDisk(t.Context(), g.UUID, hv.Config, hv.DiskSpec{
		Target: "vdz", Bus: "virtio", Image: hv.Image{Type: hv.SourceFile, Format: hvtest.Raw, Path: path},
	})
	if !errors.Is(err, hv.ErrUnsupported) {
		t.Errorf("a disk without a port: AttachDisk = %v, want ErrUnsupported", err)
	}
	if diff := cmp.Diff(before, env.virsh(t, "dumpxml", "--inactive", g.UUID)); diff != "" {
		t.Errorf("the definition was changed:\n%s", diff)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
