// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/daemon/internal/config"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/location"
)

// unprivileged is a hypervisor with a QEMU that is not root.
type unprivileged struct {
	*hvtest.Fake
	given bool
}

func (u unprivileged) QEMUUser(context.Context, string) (hv.ProcessUser, error) {
	return hv.ProcessUser{UID: 64055, GID: 64055, Given: u.given}, nil
}

func TestDoctorNamesWhatQEMUDoesNotReach(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to look as another user")
	}
	top, err := os.MkdirTemp("/var/tmp", "volferry-doctor-") //nolint:usetesting // the parent of t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	state, pool := filepath.Join(top, "state"), filepath.Join(top, "pool")
	for _, dir := range []string{top, state, filepath.Join(state, "overlays"), pool} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fake := hvtest.New()
	fake.AddPool(hv.PoolInfo{Name: "fast", Type: "dir", Path: pool, Active: true})
	allowed := []string{"/dev/mapper/volumes-*"} // libvirt gives QEMU access to a device, whatever its directory
	d := &Doctor{Cfg: &config.Config{OverlayDir: filepath.Join(state, "overlays"), AllowedPaths: allowed}, HV: unprivileged{fake, true}}
	if checks := d.reach(t.Context()); len(checks) != 1 || checks[0].Status != "ok" {
		t.Errorf("where everything is open: %+v", checks)
	}
	for dir, want := range map[string]string{state: "fail", pool: "warn"} {
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		checks := d.reach(t.Context())
		if len(checks) != 1 || checks[0].Status != want || !strings.Contains(checks[0].Message, dir+" (mode 0700)") {
			t.Errorf("with %s closed: %+v", dir, checks)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDoctorNamesTheImagesThatQEMUCannotOpen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to look as another user")
	}
	dir := t.TempDir()
	theirs, own := filepath.Join(dir, "theirs.raw"), filepath.Join(dir, "own.raw")
	fake := hvtest.New()
	// No user may write to theirs, not even its owner. If libvirt changes images' owner, only a
	// real attempt would show that, and it would change the owner.
	for path, mode := range map[string]os.FileMode{theirs: 0o400, own: 0o600} {
		if err := errors.Join(os.WriteFile(path, nil, mode), fake.CreateImage(path, hvtest.Raw, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(own, 64055, 64055); err != nil {
		t.Fatal(err)
	}
	disk := func(target, path string) hv.Disk {
		return hv.Disk{Target: target, Device: "disk", Bus: "virtio", Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: path}}}
	}
	web := hv.Domain{ID: "0b1c2d3e-0000-4000-8000-000000000001", Name: "web", Config: []hv.Disk{disk("vda", theirs), disk("vdb", own)}}
	if err := fake.Define(web); err != nil {
		t.Fatal(err)
	}
	for given, want := range map[bool]int{true: 0, false: 1} {
		checks := (&Doctor{Cfg: &config.Config{}, HV: unprivileged{fake, given}}).images(t.Context())
		if len(checks) != want || want > 0 && (checks[0].Name != "instance web" || !strings.Contains(checks[0].Message, theirs)) {
			t.Errorf("given %v: %+v", given, checks)
		}
	}
}

func TestDoctorTriesToMakeAnImageWhoeverMayOpenIt(t *testing.T) {
	for name, user := range map[string]hv.ProcessUser{"QEMU is root": {}, "libvirt gives no images": {UID: 64055, GID: 64055}} {
		checks := (&Doctor{}).try(user, place{what: "pool broken", dir: "/proc", status: "warn"})
		if len(checks) != 1 || checks[0].Status != "warn" || !strings.Contains(checks[0].Message, "cannot create and open an image for pool broken") {
			t.Errorf("%s: %+v", name, checks)
		}
	}
}

func TestDoctorNamesWhatAFilesystemCannotDo(t *testing.T) {
	const memory = "/dev/shm"
	if inMemory, err := location.InMemory(memory); err != nil || !inMemory {
		t.Skipf("SKIPPED: this machine has no tmpfs at %s (%v)", memory, err)
	}
	fake := hvtest.New()
	fake.AddPool(hv.PoolInfo{Name: "ram", Type: "dir", Path: memory, Active: true})
	d := &Doctor{Cfg: &config.Config{OverlayDir: memory}, HV: fake}
	checks := d.reach(t.Context())
	if !found(checks, "filesystem", "fail", "the overlays in "+memory+": the filesystem of "+memory+" (tmpfs) is in memory") || !found(checks, "filesystem", "warn", "pool ram: ") {
		t.Errorf("%+v", checks)
	}
}
