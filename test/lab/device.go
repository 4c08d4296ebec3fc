// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Loop is a loop device: a block device for those who need one.
type Loop struct {
	Path string // /dev/loopN
	File string // its bytes

	claim *claim
}

// LoopDevice makes a block device of a file. It passes by the page cache of the
// host, as a disk would, where the file system of the file can. Close must be
// called.
func LoopDevice(file string) (*Loop, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, fmt.Errorf("make loop device: %w", err)
	}
	c, err := claimDir(file)
	if err != nil {
		return nil, err
	}
	device, err := attachLoop(file)
	if err != nil {
		return nil, fmt.Errorf("make loop device of %s: %w", file, errors.Join(err, c.release()))
	}
	return &Loop{Path: device, File: file, claim: c}, nil
}

// Close detaches the device. The file stays. It may be called twice.
func (l *Loop) Close() error {
	if l.claim == nil {
		return nil
	}
	// By file: the device may have been detached already, and be another's now.
	if err := clean(l.File); err != nil {
		return err
	}
	err := l.claim.release()
	l.claim = nil
	return err
}

// FS is a file system of its own, of a size of its own, on a loop device.
type FS struct {
	Dir string // where it is mounted

	loop   *Loop
	claim  *claim
	memory *claim // of the directory in memory where its bytes are; nil: they are on a disk
}

// mkfs are the commands that make the file systems, by name. XFS and btrfs can
// share extents between files (reflink), ext4 cannot.
var mkfs = map[string][]string{
	"ext4":  {"mkfs.ext4", "-q", "-F"},
	"xfs":   {"mkfs.xfs", "-q", "-m", "reflink=1"},
	"btrfs": {"mkfs.btrfs", "-q"},
	"exfat": {"mkfs.exfat"},
}

// byProgram are the file systems that a program mounts, since the kernel of this machine need not
// have them.
var byProgram = map[string]string{"exfat": "mount.exfat-fuse"}

// LacksFS returns which program this machine lacks for a file system, "" if it has all.
func LacksFS(fstype string) string {
	for _, program := range []string{mkfs[fstype][0], byProgram[fstype]} {
		if _, err := exec.LookPath(program); program != "" && err != nil {
			return program
		}
	}
	return ""
}

func mountFS(ctx context.Context, device, dir, fstype string) error {
	if program := byProgram[fstype]; program != "" {
		_, err := run(ctx, program, device, dir)
		return err
	}
	return unix.Mount(device, dir, fstype, 0, "")
}

// LoopFS makes a file system (ext4, xfs, btrfs, or by FUSE exfat) of this size and mounts it on
// dir, which it creates; its bytes are in dir.img, which is sparse. xfs wants
// 300 MiB at least. For a libvirtd that runs already dir must be below its Dir.
// Close must be called.
func LoopFS(ctx context.Context, dir, fstype string, sizeMiB int64) (*FS, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("make file system: %w", err)
	}
	return imageFS(ctx, dir, dir+".img", fstype, sizeMiB)
}

// MemoryFS is LoopFS with the bytes in memory, and so on no disk that another file
// system is on. They are gone after Close.
func MemoryFS(ctx context.Context, dir, fstype string, sizeMiB int64) (*FS, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("make file system: %w", err)
	}
	memory := dir + ".memory"
	if err := os.MkdirAll(memory, 0o755); err != nil {
		return nil, fmt.Errorf("make file system: %w", err)
	}
	c, err := claimDir(memory)
	if err != nil {
		return nil, err
	}
	if err := unix.Mount("tmpfs", memory, "tmpfs", 0, fmt.Sprintf("size=%dm", sizeMiB+1)); err != nil {
		return nil, fmt.Errorf("mount memory for a file system: %w", errors.Join(err, c.release()))
	}
	f, err := imageFS(ctx, dir, filepath.Join(memory, "img"), fstype, sizeMiB)
	if err != nil {
		return nil, errors.Join(err, clean(memory), c.release())
	}
	f.memory = c
	return f, nil
}

// imageFS makes a file system in a file and mounts it on dir.
func imageFS(ctx context.Context, dir, image, fstype string, sizeMiB int64) (*FS, error) {
	command, ok := mkfs[fstype]
	if !ok {
		return nil, fmt.Errorf("make file system: unknown type %q", fstype)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make file system: %w", err)
	}
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, sizeMiB<<20)); err != nil {
		return nil, fmt.Errorf("make file system: %w", err)
	}
	if _, err := run(ctx, command[0], append(command[1:], image)...); err != nil {
		return nil, err
	}
	c, err := claimDir(dir)
	if err != nil {
		return nil, err
	}
	f := &FS{Dir: dir, claim: c}
	if f.loop, err = LoopDevice(image); err != nil {
		return nil, errors.Join(err, c.release())
	}
	// A guest of another test may get a mount namespace now. Its copy would keep the device busy.
	if err := shareDir(dir); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := mountFS(ctx, f.loop.Path, dir, fstype); err != nil {
		return nil, fmt.Errorf("mount %s: %w", dir, errors.Join(err, f.Close()))
	}
	return f, nil
}

// Close unmounts the file system, which nobody may be using. The image stays, unless
// it was in memory. It may be called twice.
func (f *FS) Close() error {
	if f.claim == nil {
		return nil
	}
	if err := clean(f.Dir); err != nil {
		return err
	}
	err := errors.Join(f.loop.Close(), f.claim.release())
	f.claim = nil
	if f.memory != nil {
		err = errors.Join(err, clean(f.memory.Dir), f.memory.release())
	}
	return err
}
