// SPDX-License-Identifier: Apache-2.0

package location

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Filesystem is the kernel's description of a directory's filesystem.
type Filesystem struct {
	// Kind is the kernel's name of the filesystem's type.
	Kind string
	// options are the options of the filesystem, not of its mount point.
	options []string
}

// localKinds are filesystems that only one host may have mounted for writing.
var localKinds = []string{
	"ext2", "ext3", "ext4", "xfs", "btrfs", "bcachefs", "zfs", "f2fs", "jfs", "reiserfs", "vfat", "exfat", "ntfs3",
	"tmpfs", "ramfs", "overlay", "squashfs",
}

// FilesystemOf returns the filesystem of an existing directory.
func FilesystemOf(dir string) (Filesystem, error) {
	path, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Filesystem{}, fmt.Errorf("look at the filesystem of %s: %w", dir, err)
	}
	table, err := os.ReadFile(mountInfo)
	if err != nil {
		return Filesystem{}, fmt.Errorf("look at the filesystem of %s: %w", dir, err)
	}
	m, ok := mountOf(string(table), path)
	if !ok {
		return Filesystem{}, fmt.Errorf("%s says no mount of %s", mountInfo, dir)
	}
	return Filesystem{m.kind, m.options}, nil
}

// Local reports whether no other host can have the filesystem mounted. It returns false for an
// unknown kind, such as FUSE.
func (f Filesystem) Local() bool { return slices.Contains(localKinds, f.Kind) }

// LocksHereOnly returns the mount option that makes QEMU's locks local to this host although other
// hosts see the file, or "".
func (f Filesystem) LocksHereOnly() string {
	here := []string{"nolock", "local_lock=all", "local_lock=posix", "localflocks", "nobrl"}
	i := slices.IndexFunc(f.options, func(o string) bool { return slices.Contains(here, o) })
	if i < 0 {
		return ""
	}
	return f.options[i]
}
