// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/volferry/volferry/test/lab/initrd"
)

// Boot is what a guest boots from.
type Boot struct {
	Kernel string // path of the kernel image
	Initrd string // path of the initial file system with the guest's program
}

// kernelOptions are what every guest's kernel is told. It is not to test its timer: on a busy
// machine that seems broken, and the kernel goes on with one that is. And it has no secrets to
// keep.
const kernelOptions = "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off"

// guestModules are the drivers of the guest, each after those it needs. One
// that the kernel has built in is no file, and is passed over.
var guestModules = []string{
	"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci",
	"virtio_blk", "virtio_console", "evdev", "button", "pvpanic", "pvpanic-mmio",
}

// built is what this process has built, once it has succeeded.
var built struct {
	sync.Mutex
	boot *Boot
}

// Kernel returns the Debian cloud kernel that install.sh fetched, with an
// initial file system built from the sources as they were when this process
// first asked.
func Kernel(ctx context.Context) (Boot, error) {
	built.Lock()
	defer built.Unlock()
	if built.boot != nil {
		return *built.boot, nil
	}
	b, err := buildBoot(ctx)
	if err == nil {
		built.boot = &b
	}
	return b, err
}

func buildBoot(ctx context.Context) (Boot, error) {
	b := Boot{
		Kernel: filepath.Join(cacheDir(), "kernel", "vmlinuz"),
		Initrd: filepath.Join(cacheDir(), "initrd.cpio"),
	}
	if _, err := os.Stat(b.Kernel); err != nil {
		return Boot{}, fmt.Errorf("find the guests' kernel (run test/lab/install.sh): %w", err)
	}
	image, err := buildInitrd(ctx)
	if err != nil {
		return Boot{}, fmt.Errorf("build the guests' image: %w", err)
	}
	if old, err := os.ReadFile(b.Initrd); err == nil && bytes.Equal(old, image) {
		return b, nil
	}
	// Another test binary may be booting from the old one.
	f, err := os.CreateTemp(cacheDir(), "initrd.*.tmp")
	if err != nil {
		return Boot{}, fmt.Errorf("store the guests' image: %w", err)
	}
	_, err = f.Write(image)
	// QEMU's user reads it, whichever lab it belongs to at the moment.
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), b.Initrd)
	}
	if err != nil {
		return Boot{}, fmt.Errorf("store the guests' image: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return b, nil
}

// buildInitrd returns a cpio archive with the guest's program as /init and its
// modules, named in the order in which to load them.
func buildInitrd(ctx context.Context) ([]byte, error) {
	init, err := buildInit(ctx)
	if err != nil {
		return nil, err
	}
	files, err := moduleFiles()
	if err != nil {
		return nil, err
	}
	var archive initrd.Archive
	archive.Dir("dev")
	if err := archive.Modules(ctx, "/modules", files); err != nil {
		return nil, err
	}
	archive.File("init", 0o755, init)
	return archive.Bytes(), nil
}

// guestProgram names a file that is the guest's program already: a machine that runs tests
// may have no compiler.
const guestProgram = "VOLFERRY_LAB_GUEST"

// buildInit compiles the guest's program.
func buildInit(ctx context.Context) ([]byte, error) {
	if path := os.Getenv(guestProgram); path != "" {
		return os.ReadFile(path)
	}
	return initrd.Build(ctx, filepath.Join(sourceDir(), "guest"))
}

// moduleFiles finds the files of guestModules, in their order.
func moduleFiles() ([]string, error) {
	byName := make(map[string]string)
	err := filepath.WalkDir(filepath.Join(cacheDir(), "kernel", "modules"), func(path string, _ fs.DirEntry, err error) error {
		if name, ext, found := strings.Cut(filepath.Base(path), "."); found && strings.HasPrefix(ext, "ko") {
			byName[name] = path
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find modules: %w", err)
	}
	var files []string
	for _, name := range guestModules {
		if path := byName[name]; path != "" {
			files = append(files, path)
		}
	}
	return files, nil
}
