// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

// CommitByUser simulates `virsh blockcommit --active --pivot`.
func (w *World) CommitByUser(t *testing.T) {
	t.Helper()
	expect.OK(t, hosttest.Commit(w.Fake, Instance, "vda"))
}

// Aliases makes an image of no volume, and returns its path and other names.
func (w *World) Aliases(t *testing.T) (path string, names []string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "free.raw")
	names = []string{path, filepath.Join(dir, "hard.raw"), filepath.Join(dir, "soft.raw"), filepath.Join(dir, "alias", "free.raw")}
	expect.OK(t, os.WriteFile(path, nil, 0o600))
	expect.OK(t, os.Link(path, names[1]))
	expect.OK(t, os.Symlink(path, names[2]))
	expect.OK(t, os.Symlink(dir, filepath.Join(dir, "alias")))
	for _, name := range names {
		expect.OK(t, w.CreateImage(name, hvtest.Raw, Size))
	}
	return path, names
}

// DefineOn defines a domain, which is off, with an image as its disk.
func (w *World) DefineOn(t *testing.T, path string) {
	t.Helper()
	expect.OK(t, w.Define(hv.Domain{ID: SrcAttachment, Name: "other", Config: []hv.Disk{{
		Target: "vda", Bus: "virtio", Device: "disk", Terminated: true,
		Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: path}},
	}}}))
}

// SnapshotByUser simulates another program's external snapshot of the disk.
func (w *World) SnapshotByUser(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	dom, err := w.Fake.Domain(ctx, Instance)
	expect.OK(t, err)
	expect.OK(t, w.Fake.CreateOverlay(ForeignPath, dom.LiveDisk("vda").Top(), Size))
	expect.OK(t, w.Fake.PutOverlay(ctx, Instance, "vda", hv.Image{Type: hv.SourceFile, Format: hvtest.Qcow2, Path: ForeignPath}))
}

// Replace puts a foreign image at a path.
func (w *World) Replace(t *testing.T, path string) (born int64) {
	t.Helper()
	expect.OK(t, w.Remove(path))
	expect.OK(t, w.CreateImage(path, hvtest.Raw, Size))
	expect.OK(t, w.WriteBlock(path, 0, 4711))
	return w.Born(t, path)
}

// Born returns a value that distinguishes the image at path from a later one.
func (w *World) Born(t *testing.T, path string) int64 {
	t.Helper()
	info, err := w.Info(path)
	expect.OK(t, err)
	return info.Born
}

// Redefine changes the instance's definition.
func (w *World) Redefine(t *testing.T, change func(*hv.Domain)) {
	t.Helper()
	expect.OK(t, w.Undefine(Instance))
	d := hv.Domain{ID: Instance, Name: "web", Config: []hv.Disk{{
		Target: "vda", Bus: "virtio", Device: "disk", Terminated: true,
		Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: SrcPath}},
	}}}
	change(&d)
	expect.OK(t, w.Define(d))
}

// Elsewhere makes the volume an unattached volume in another host's pool.
func (w *World) Elsewhere(pool string) {
	v := &w.Registry.Vol
	v.Attachments, v.Status, v.Host, v.Location.Pool = nil, api.VolumeAvailable, "elsewhere", pool
	v.Location.Name = filepath.Base(SrcPath)
}

// Unattached makes the volume unattached, in a pool of this host.
func (w *World) Unattached() {
	w.InOldPool()
	v := &w.Registry.Vol
	v.Attachments, v.Status = nil, api.VolumeAvailable
}

// InOldPool gives the volume a pool, as an unattached volume needs.
func (w *World) InOldPool() {
	w.AddPool(hv.PoolInfo{Name: "old", Type: "dir", Path: filepath.Dir(SrcPath), Active: true})
	v := &w.Registry.Vol
	v.Location.Pool, v.Location.Name = "old", filepath.Base(v.Location.Path)
	for i := range v.Attachments {
		v.Attachments[i].Location = v.Location
	}
}

// ForeignPath is the path of another program's snapshot.
const ForeignPath = "/backup/snap.qcow2"

// VolumeAt returns another volume, at path.
func VolumeAt(path string) api.Volume {
	return api.Volume{ID: uuid.NewString(), Name: "free", Status: api.VolumeAvailable, Host: Host, Location: api.Location{Path: path, Format: api.FormatRaw, SizeBytes: Size}}
}

// OpenFiles also returns the Reopened images.
func (w *World) OpenFiles(ctx context.Context, id string, paths ...string) ([]hv.OpenFile, error) {
	files, err := w.Fake.OpenFiles(ctx, id, paths...)
	w.Mu.Lock()
	defer w.Mu.Unlock()
	for _, path := range paths {
		if err == nil && w.Reopened != nil && w.Reopened(path) {
			files = append(files, hv.OpenFile{Path: path, PID: 1, FD: 1})
		}
	}
	return files, err
}
