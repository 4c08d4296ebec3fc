// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

func attachLoop(file string) (string, error) {
	backing, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = backing.Close() }()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = control.Close() }()
	config := unix.LoopConfig{Fd: uint32(backing.Fd()), Size: 512}
	config.Info.Flags = unix.LO_FLAGS_DIRECT_IO
	copy(config.Info.File_name[:len(config.Info.File_name)-1], file)
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("find free loop device: %w", err)
		}
		path := fmt.Sprintf("/dev/loop%d", n)
		device, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return "", err
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err = errors.Join(err, device.Close()); err == nil {
			return path, nil
		}
		if !errors.Is(err, unix.EBUSY) { // else another took it since
			return "", fmt.Errorf("configure %s: %w", path, err)
		}
	}
}

// loopDevices maps each loop device in use to its backing file.
func loopDevices() (map[string]string, error) {
	paths, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	loops := make(map[string]string)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // detached since
		}
		name := filepath.Base(filepath.Dir(filepath.Dir(path)))
		file := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), " (deleted)")
		loops["/dev/"+name] = file
	}
	return loops, nil
}

// detachLoopsUnder detaches the loop devices whose backing file is at or below
// path.
func detachLoopsUnder(path string) error {
	loops, err := loopDevices()
	if err != nil {
		return err
	}
	var errs []error
	for device, file := range loops {
		if within(path, file) {
			errs = append(errs, detachLoop(device))
		}
	}
	return errors.Join(errs...)
}

func detachLoop(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return fmt.Errorf("detach loop device: %w", err)
	}
	err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
	if errors.Is(err, unix.ENXIO) {
		err = nil // detached since
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("detach %s: %w", device, err)
	}
	return nil
}

// FS is a file system of its own, of a size of its own, on a loop device.
type FS struct {
	Dir string // where it is mounted

	loop  *Loop
	claim *claim
}

// mkfs are the commands that make the file systems, by name. XFS and btrfs can
// share extents between files (reflink), ext4 cannot.
var mkfs = map[string][]string{
	"ext4":  {"mkfs.ext4", "-q", "-F"},
	"xfs":   {"mkfs.xfs", "-q", "-m", "reflink=1"},
	"btrfs": {"mkfs.btrfs", "-q"},
}

// LoopFS makes a file system (ext4, xfs or btrfs) of this size and mounts it on
// dir, which it creates; its bytes are in dir.img, which is sparse. xfs wants
// 300 MiB at least. For a libvirtd that runs already dir must be below its Dir.
// Close must be called.
func LoopFS(ctx context.Context, dir, fstype string, sizeMiB int64) (*FS, error) {
	command, ok := mkfs[fstype]
	if !ok {
		return nil, fmt.Errorf("make file system: unknown type %q", fstype)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("make file system: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make file system: %w", err)
	}
	image := dir + ".img"
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
	if err := unix.Mount(f.loop.Path, dir, fstype, 0, ""); err != nil {
		return nil, fmt.Errorf("mount %s: %w", dir, errors.Join(err, f.Close()))
	}
	return f, nil
}

// Close unmounts the file system, which nobody may be using. The image stays.
// It may be called twice.
func (f *FS) Close() error {
	if f.claim == nil {
		return nil
	}
	if err := clean(f.Dir); err != nil {
		return err
	}
	err := errors.Join(f.loop.Close(), f.claim.release())
	f.claim = nil
	return err
}
