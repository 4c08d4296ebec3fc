// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"path/filepath"
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

func TestGuestGoesOnAfterResetRebootPowerOffAndPause(t *testing.T) {
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
	if n := len(g.History("vda").Sessions); n != 4 {
		t.Errorf("%d sessions, want 4: first boot, reset, reboot, poweroff and start", n)
	}
}
