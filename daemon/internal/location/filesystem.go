// SPDX-License-Identifier: Apache-2.0

package location

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Filesystem is what the kernel says of the filesystem of a directory.
type Filesystem struct {
	// Kind is its type, as the kernel calls it.
	Kind string
	// options are those of the filesystem, not of where it is mounted.
	options []string
}

// localKinds are filesystems that one host alone may have mounted for writing.
var localKinds = []string{
	"ext2", "ext3", "ext4", "xfs", "btrfs", "bcachefs", "zfs", "f2fs", "jfs", "reiserfs", "vfat", "exfat", "ntfs3",
	"tmpfs", "ramfs", "overlay", "squashfs",
}

// FilesystemOf looks at a directory that exists.
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

// Local reports whether no other host can have it. Of a kind that is not known, such as one by
// FUSE, it says no.
func (f Filesystem) Local() bool { return slices.Contains(localKinds, f.Kind) }

// LocksHereOnly returns the mount option by which a lock of QEMU's is known to this host alone,
// although others see the file; empty if there is none.
func (f Filesystem) LocksHereOnly() string {
	here := []string{"nolock", "local_lock=all", "local_lock=posix", "localflocks", "nobrl"}
	i := slices.IndexFunc(f.options, func(o string) bool { return slices.Contains(here, o) })
	if i < 0 {
		return ""
	}
	return f.options[i]
}
