// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/test/lab/workload"
)

const mib = 1 << 20

// writingGuest boots a guest with one disk and returns when it writes.
func writingGuest(t *testing.T, l *Libvirtd, disk Disk) *Guest {
	t.Helper()
	disk.Path = filepath.Join(l.Dir, "vol")
	disk.Serial, disk.Seed, disk.Fill = "serial-1", 42, Fill{Seed: 42, Percent: 10}
	if err := MakeVolume(t.Context(), disk.Volume, 64*mib, disk.Fill); err != nil {
		t.Fatal(err)
	}
	g, err := l.DefineGuest(t.Context(), GuestConfig{Name: "guest", Disks: []Disk{disk}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := g.Write("vda", Load{Interval: time.Millisecond, Depth: 4}); err != nil {
		t.Fatal(err)
	}
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitWriting(t, g, 500)
	return g
}

func waitWriting(t *testing.T, g *Guest, n int) {
	t.Helper()
	if err := g.WaitWriting(t.Context(), "vda", n); err != nil {
		t.Fatal(err)
	}
}

// mustHold checks the volume against all that the guest has reported.
func mustHold(t *testing.T, g *Guest, v Volume, opts ...CheckOption) {
	t.Helper()
	h := g.History("vda")
	r, err := Check(t.Context(), v, h, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if r.Acked == 0 || r.Found != r.Acked || r.Written == 0 {
		t.Errorf("checked %+v: want every one of many operations found", r)
	}
	if diff := cmp.Diff([]string(nil), h.Errors); diff != "" {
		t.Errorf("operations failed in the guest (-want +got):\n%s", diff)
	}
	t.Logf("%d acknowledged, %d found, %d blocks written", r.Acked, r.Found, r.Written)
}

func TestEveryAckedWriteIsThereAfterDestroy(t *testing.T) {
	for _, format := range []string{"raw", "qcow2"} {
		t.Run(format, func(t *testing.T) {
			if format == "raw" {
				leftToTestConformance(t)
			}
			l := startLibvirtd(t)
			v := Volume{Path: filepath.Join(l.Dir, "vol"), Format: format}
			g := writingGuest(t, l, Disk{Volume: v})
			if err := g.Destroy(t.Context()); err != nil {
				t.Fatal(err)
			}
			mustHold(t, g, v)
		})
	}
}

// QEMU keeps what a qcow2 image maps where in memory until the guest flushes.
func TestEveryFlushedWriteIsThereAfterQEMUIsKilled(t *testing.T) {
	leftToTestConformance(t)
	l := startLibvirtd(t)
	v := Volume{Path: filepath.Join(l.Dir, "vol"), Format: "qcow2"}
	g := writingGuest(t, l, Disk{Volume: v})
	text, err := os.ReadFile(filepath.Join(l.RunDir, "qemu", "guest.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := g.WaitState(t.Context(), "shut off"); err != nil {
		t.Fatal(err)
	}
	mustHold(t, g, v, UnflushedMayBeLost())
	for _, a := range g.History("vda").Acks {
		if (a.Flush > 0) != a.Op.Flush || a.Flush > a.Latency {
			t.Fatalf("operation %+v took %v, and the flush behind it %v of that", a.Op, a.Latency, a.Flush)
		}
	}
}

func TestPauseIsSeenAsAGapAndNotAsALatency(t *testing.T) {
	leftToTestConformance(t)
	l := startLibvirtd(t)
	v := Volume{Path: filepath.Join(l.Dir, "vol"), Format: "raw"}
	g := writingGuest(t, l, Disk{Volume: v})
	from := time.Now()
	if err := g.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	paused := time.Now()
	const pause = 2 * time.Second
	<-time.After(pause) // the pause itself is what is measured
	resumed := time.Now()
	if err := g.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitWriting(t, g, 100)
	p := g.History("vda").Between(from, time.Now())
	t.Logf("%+v", p)
	if p.LongestGap < resumed.Sub(paused) {
		t.Errorf("longest gap is %v, the guest was paused for %v", p.LongestGap, resumed.Sub(paused))
	}
	if p.Max >= pause {
		t.Errorf("a latency of %v: the guest's clock did not stand still", p.Max)
	}
}

func TestVolumeOfAGuestThatNeverRanHoldsItsFill(t *testing.T) {
	leftToTestConformance(t)
	l := startLibvirtd(t)
	for _, format := range []string{"raw", "qcow2"} {
		disk := Disk{Volume: Volume{Path: filepath.Join(l.Dir, format), Format: format}, Fill: Fill{Seed: 3, Percent: 30}}
		if err := MakeVolume(t.Context(), disk.Volume, 8*mib, disk.Fill); err != nil {
			t.Fatal(err)
		}
		g, err := l.DefineGuest(t.Context(), GuestConfig{Name: format, Disks: []Disk{disk}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := Check(t.Context(), disk.Volume, g.History("vda"))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Err(); err != nil {
			t.Error(err)
		}
		if r.Blocks != 8*mib/workload.BlockSize {
			t.Errorf("checked %d blocks", r.Blocks)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTwoDisksOfOneGuestHaveHistoriesOfTheirOwn(t *testing.T) {
	leftToTestConformance(t)
	l := startLibvirtd(t)
	image := Volume{Path: filepath.Join(l.Dir, "image"), Format: "raw"}
	if err := MakeVolume(t.Context(), image, 64*mib, Fill{Seed: 1, Percent: 5}); err != nil {
		t.Fatal(err)
	}
	loop, err := LoopDevice(image.Path)
	if err != nil {
		t.Fatal(err)
	}
	second := Volume{Path: filepath.Join(l.Dir, "second"), Format: "qcow2"}
	if err := MakeVolume(t.Context(), second, 32*mib, Fill{Seed: 2, Percent: 5}); err != nil {
		t.Fatal(err)
	}
	disks := []Disk{
		{Volume: Volume{Path: loop.Path, Format: "raw"}, Seed: 1, Fill: Fill{Seed: 1, Percent: 5}, IOThread: true},
		{Volume: second, Seed: 2, Fill: Fill{Seed: 2, Percent: 5}},
	}
	g, err := l.DefineGuest(t.Context(), GuestConfig{Name: "guest", Machine: "q35", Disks: disks})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, disk := range []string{"vda", "vdb"} {
		if err := g.Write(disk, Load{Interval: 2 * time.Millisecond, Depth: 2}); err != nil {
			t.Fatal(err)
		}
		if err := g.WaitWriting(t.Context(), disk, 300); err != nil {
			t.Fatal(err)
		}
		if err := g.Quiesce(t.Context(), disk); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	for i, d := range disks {
		for j := range disks {
			r, err := Check(t.Context(), d.Volume, g.History(target(j)))
			if good := err == nil && r.Err() == nil; good != (i == j) {
				t.Errorf("disk %d holds the history of disk %d: %v (%v)", i, j, good, err)
			}
		}
	}
	if err := loop.Close(); err != nil {
		t.Error(err)
	}
}

func TestGuestGoesOnAfterResetRebootPowerOffAndPause(t *testing.T) {
	leftToTestConformance(t)
	l := startLibvirtd(t)
	v := Volume{Path: filepath.Join(l.Dir, "vol"), Format: "raw"}
	g := writingGuest(t, l, Disk{Volume: v, IOThread: true})
	disks, err := g.Disks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []workload.GuestDisk{{Name: "vda", Serial: "serial-1", Blocks: 64 * mib / workload.BlockSize}}
	if diff := cmp.Diff(want, disks); diff != "" {
		t.Errorf("disks that the guest sees (-want +got):\n%s", diff)
	}
	for name, interrupt := range map[string]func() error{
		"reset":  func() error { return g.Reset(t.Context()) },
		"reboot": func() error { return g.Reboot(t.Context()) },
		"reset and poweroff": func() error {
			if err := errors.Join(g.Reset(t.Context()), g.PowerOff(t.Context())); err != nil {
				return err
			}
			return g.Start(t.Context())
		},
		"poweroff": func() error {
			if err := g.PowerOff(t.Context()); err != nil {
				return err
			}
			mustHold(t, g, v)
			return g.Start(t.Context())
		},
		"pause": func() error {
			if err := g.Pause(t.Context()); err != nil {
				return err
			}
			return g.Resume(t.Context())
		},
	} {
		t.Log(name)
		if err := interrupt(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		waitWriting(t, g, 500)
	}
	if err := g.Quiesce(t.Context(), "vda"); err != nil {
		t.Fatal(err)
	}
	if err := g.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustHold(t, g, v)
	// One for the first boot, one each for reset, reboot and poweroff, two for
	// reset and poweroff.
	if n := len(g.History("vda").Sessions); n != 6 {
		t.Errorf("%d sessions, want 6", n)
	}
}
