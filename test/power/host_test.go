// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/power/tape"
	"github.com/volferry/volferry/test/site"
)

// layout says which filesystems a host has, and what is on which of them.
type layout struct {
	fs string
	// split: what is below /etc, what is below /var, and the pools have a filesystem each, as
	// with /var on its own. Otherwise all is on one.
	split bool
}

// layouts are those that are tried.
var layouts = []layout{
	{"ext4", false},
	{"xfs", false},
	{"btrfs", false},
	{"ext4", true},
	{"xfs", true},
	{"btrfs", true},
}

func (l layout) String() string {
	if l.split {
		return l.fs + " with var on its own"
	}
	return l.fs + " alone"
}

// The disks. The registry is on another machine, whose disk loses nothing that was written.
const (
	rootDisk     = "root"
	varDisk      = "var"
	poolDisk     = "pools"
	registryDisk = "registry"
)

const diskMiB = 320

func (l layout) disks() []tape.DiskConfig {
	disks := []tape.DiskConfig{{Name: registryDisk, FS: "ext4", SizeMiB: diskMiB}, {Name: rootDisk, FS: l.fs, SizeMiB: diskMiB}}
	if l.split {
		disks = append(disks, tape.DiskConfig{Name: varDisk, FS: l.fs, SizeMiB: diskMiB}, tape.DiskConfig{Name: poolDisk, FS: l.fs, SizeMiB: diskMiB})
	}
	return disks
}

// on is where on the disks a directory of the host is.
func (h *host) on(disk, name string) string {
	if !h.layout.split {
		disk = rootDisk
	}
	return filepath.Join(h.dir, disk, name)
}

// host is a site on disks of a tape.
type host struct {
	dir    string
	bin    string
	layout layout
	tape   *tape.Tape
	dump   *dump

	// The programs, while they run.
	*site.Host
	registry *site.Registry
}

// newHost makes the disks, and starts the programs on them. Another volferryd than the one that
// was built may be named.
func newHost(t *testing.T, l layout, volferryd string) *host {
	t.Helper()
	lab.Require(t)
	root, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	h := &host{dir: lab.TempDir(t), bin: filepath.Join(root, "bin"), layout: l}
	if _, err := os.Stat(filepath.Join(h.bin, "volferryd")); err != nil {
		t.Fatalf("run make build first: %v", err)
	}
	if volferryd != "" {
		h.bin = filepath.Join(h.dir, "bin")
		must(t, os.Mkdir(h.bin, 0o755))
		for _, program := range []string{"volferry-registry", "volferryctl"} {
			must(t, os.Symlink(filepath.Join(root, "bin", program), filepath.Join(h.bin, program)))
		}
		must(t, os.Symlink(volferryd, filepath.Join(h.bin, "volferryd")))
	}
	h.dump = startDump(t, root, filepath.Join(h.dir, "journaldump"))
	h.tape, err = tape.Start(t.Context(), tape.Config{Dir: filepath.Join(h.dir, "tape"), Disks: l.disks()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(h.powerOff(), h.tape.Close()); err != nil {
			t.Error(err)
		}
		if left, err := lab.Remains(h.dir); err != nil || len(left) > 0 {
			t.Errorf("when all was closed: %v left, %v", left, err)
		}
	})
	must(t, h.mount(h.tape.Mount))
	must(t, h.layOut())
	h.powerOn(t)
	for name, dir := range map[string]string{"a": h.pool("a"), "b": h.pool("b")} {
		must(t, h.Libvirtd.DirPool(t.Context(), name, dir))
		h.virsh(t, "pool-autostart", name)
	}
	return h
}

// mount mounts all disks, as they are or as they were at a cut.
func (h *host) mount(mount func(name, dir string) error) error {
	for _, d := range h.layout.disks() {
		if err := mount(d.Name, filepath.Join(h.dir, d.Name)); err != nil {
			return err
		}
	}
	return nil
}

// layOut puts what survives a boot of the host on its disks. The rest of the lab's directory,
// /run for one, is on none.
func (h *host) layOut() error {
	virt := filepath.Join(h.dir, "host", "virt")
	if err := os.MkdirAll(virt, 0o755); err != nil {
		return err
	}
	for link, dir := range map[string]string{
		filepath.Join(virt, "etc"):            h.on(rootDisk, "etc-libvirt"),
		filepath.Join(virt, "lib"):            h.on(varDisk, "lib-libvirt"),
		filepath.Join(h.dir, "host", "state"): h.on(varDisk, "lib-volferry"),
	} {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Symlink(dir, link)); err != nil {
			return err
		}
	}
	return errors.Join(os.MkdirAll(h.pool("a"), 0o755), os.MkdirAll(h.pool("b"), 0o755))
}

func (h *host) pool(name string) string { return h.on(poolDisk, "pool-"+name) }

// definitions is the directory of libvirt's definitions of domains.
func (h *host) definitions() string { return h.on(rootDisk, "etc-libvirt/qemu") }

func (h *host) journal() string { return h.on(varDisk, "lib-volferry/journal.db") }

func (h *host) overlays() string { return h.on(varDisk, "lib-volferry/overlays") }

// powerOn starts the programs, as a boot does, on what is mounted.
func (h *host) powerOn(t *testing.T) {
	t.Helper()
	must(t, h.boot(t.Context()))
}

func (h *host) boot(ctx context.Context) (err error) {
	dir := filepath.Join(h.dir, "host")
	if err := os.RemoveAll(filepath.Join(dir, "virt", "run")); err != nil { // as /run is after a boot
		return err
	}
	if h.Host, err = site.NewHost(ctx, dir, h.bin, "lab"); err != nil {
		return err
	}
	h.registry = site.NewRegistry(filepath.Join(h.dir, registryDisk), h.bin)
	h.Registry = "unix://" + h.registry.Socket()
	h.Flags = []string{
		"--state-dir", h.on(varDisk, "lib-volferry"), "--overlay-dir", h.overlays(), "--libvirt-config-dir", h.definitions(),
		"--libvirt-state-dir", h.on(varDisk, "lib-libvirt/qemu"),
		"--allowed-paths", h.dir + ":/dev", "--overlay-min-free-bytes", fmt.Sprint(16 << 20),
	}
	if err := h.registry.Start(ctx); err != nil {
		return err
	}
	return h.StartDaemon(ctx)
}

// powerOff ends all programs and unmounts the disks. What they write as they go is not on the
// tape any more.
func (h *host) powerOff() error {
	if h.Host != nil {
		if err := h.Host.Close(); err != nil {
			return err
		}
		h.Host = nil
	}
	if h.registry != nil {
		h.registry.Stop()
		h.registry = nil
	}
	return h.tape.Unmount()
}

func (h *host) virsh(t *testing.T, args ...string) {
	t.Helper()
	if _, err := h.Libvirtd.Virsh(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

// ctl runs volferryctl, which must succeed.
func (h *host) ctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.Ctl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func get[T any](t *testing.T, h *host, noun string, args ...string) T {
	t.Helper()
	v, err := site.Get[T](t.Context(), h.Caller, noun, args...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
