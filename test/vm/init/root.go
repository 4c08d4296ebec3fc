// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/test/vm/boot"
)

// newRoot is where the root is put together.
const newRoot = "/new"

// enterRoot puts the root together and makes it this process's.
func enterRoot(shares []boot.Share) error {
	if err := mountShare(boot.Share{Tag: boot.RootTag, Path: "/"}); err != nil {
		return err
	}
	for path, fs := range map[string]string{"/proc": "proc", "/sys": "sysfs", "/dev": "devtmpfs", "/run": "tmpfs", "/tmp": "tmpfs"} {
		if err := mount(fs, newRoot+path, fs, ""); err != nil {
			return err
		}
	}
	for path, fs := range map[string]string{"/dev/pts": "devpts", "/dev/shm": "tmpfs", "/sys/fs/cgroup": "cgroup2", "/sys/kernel/config": "configfs"} {
		if err := mount(fs, newRoot+path, fs, ""); err != nil && fs != "configfs" { // a module, which is loaded later
			return err
		}
	}
	for _, s := range shares {
		if err := mountShare(s); err != nil {
			return err
		}
	}
	if err := unix.Chdir(newRoot); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	return unix.Chdir("/")
}

// mountShare mounts a directory of the host below newRoot, by itself or under a file system in
// memory that takes what is written.
func mountShare(s boot.Share) error {
	const options = "trans=virtio,version=9p2000.L,msize=524288,cache=loose"
	at := filepath.Join(newRoot, s.Path)
	if s.Writable {
		return mount(s.Tag, at, "9p", "trans=virtio,version=9p2000.L,msize=524288")
	}
	lower, upper := "/shares/"+s.Tag, "/memory/"+s.Tag
	if err := mountWith(s.Tag, lower, "9p", options, unix.MS_RDONLY); err != nil {
		return err
	}
	if err := mount("tmpfs", upper, "tmpfs", "mode=755"); err != nil {
		return err
	}
	for _, dir := range []string{"files", "work"} {
		if err := os.Mkdir(filepath.Join(upper, dir), 0o755); err != nil {
			return err
		}
	}
	return mount("overlay", at, "overlay", fmt.Sprintf("lowerdir=%s,upperdir=%s/files,workdir=%[2]s/work", lower, upper))
}

func mount(what, at, fs, options string) error { return mountWith(what, at, fs, options, 0) }

func mountWith(what, at, fs, options string, flags uintptr) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return fmt.Errorf("mount %s: %w", at, err)
	}
	if err := unix.Mount(what, at, fs, flags, options); err != nil {
		return fmt.Errorf("mount %s (%s) at %s: %w", what, fs, at, err)
	}
	return nil
}
