// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// dirPool makes a storage pool in a directory beside the others: on one file
// system with them, which need not be able to share extents.
func (h *host) dirPool(t *testing.T, name string) (dir string) {
	t.Helper()
	dir = filepath.Join(h.Libvirtd.Dir, "pool-"+name)
	if err := h.Libvirtd.DirPool(t.Context(), name, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// removePool has libvirt forget a pool.
func (h *host) removePool(t *testing.T, name string) {
	for _, command := range []string{"pool-destroy", "pool-undefine"} {
		// After the test: its context has ended.
		if _, err := h.Libvirtd.Virsh(context.WithoutCancel(t.Context()), command, name); err != nil {
			t.Error(err)
		}
	}
}

// fsPool makes a storage pool on a file system of its own, ext4 or xfs. An xfs
// can share extents and is 300 MiB at least.
func (h *host) fsPool(t *testing.T, name, fstype string, sizeMiB int64) (dir string) {
	t.Helper()
	fs, err := lab.LoopFS(t.Context(), filepath.Join(h.Libvirtd.Dir, "pool-"+name), fstype, sizeMiB)
	if err != nil {
		t.Fatal(err)
	}
	h.dirPool(t, name)
	t.Cleanup(func() {
		h.removePool(t, name)
		if err := fs.Close(); err != nil {
			t.Error(err)
		}
	})
	return fs.Dir
}

// device makes a block device of this size; its bytes are in dir.
func (h *host) device(t *testing.T, dir string, sizeBytes int64) *lab.Loop {
	t.Helper()
	file := filepath.Join(dir, fmt.Sprintf("device-%d", h.number()))
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, sizeBytes)); err != nil {
		t.Fatal(err)
	}
	loop, err := lab.LoopDevice(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(h.forgetVolumeAt(context.WithoutCancel(t.Context()), loop.Path), loop.Close()); err != nil {
			t.Error(err)
		}
	})
	return loop
}

// forgetVolumeAt forgets the volume of a device, if it is one, before another test gets
// a device of that name.
func (h *host) forgetVolumeAt(ctx context.Context, path string) error {
	volumes, err := site.Get[[]api.Volume](ctx, h.Caller, "volumes", "volume", "list")
	if err != nil {
		return err
	}
	for _, v := range volumes {
		if v.Location.Path == path {
			_, err := h.Ctl(ctx, "volume", "forget", v.Name)
			return err
		}
	}
	return nil
}

// diskIn makes a filled volume in a directory, for a guest or for no guest.
func (h *host) diskIn(t *testing.T, dir string, format api.Format) lab.Disk {
	t.Helper()
	n := h.number()
	d := lab.Disk{
		Volume: lab.Volume{Path: filepath.Join(dir, fmt.Sprintf("vol-%d.%s", n, format)), Format: string(format)},
		Serial: fmt.Sprintf("serial-%d", n), Seed: uint64(n), Fill: lab.Fill{Seed: uint64(n), Percent: 30},
	}
	if err := lab.MakeVolume(t.Context(), d.Volume, volumeBytes, d.Fill); err != nil {
		t.Fatal(err)
	}
	return d
}

// diskOn makes a filled volume of a block device, for no guest yet.
func (h *host) diskOn(t *testing.T, device *lab.Loop) lab.Disk {
	t.Helper()
	n := uint64(h.number())
	d := lab.Disk{Volume: lab.Volume{Path: device.Path, Format: "raw"}, Seed: n, Fill: lab.Fill{Seed: n, Percent: 30}}
	if err := lab.FillVolume(d.Path, d.Fill); err != nil {
		t.Fatal(err)
	}
	return d
}

// freeBytes is how much room the file system of a directory has.
func freeBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bfree) * st.Bsize
}

// emptyDir removes what is in a directory.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
	}
	return err
}
