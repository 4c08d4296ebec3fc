// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/atomicfile"
)

// Storage is Images on the files and devices of this host.
type Storage struct{}

func qemuImage(img hv.Image) qemuimg.Image { return qemuimg.Image{Path: img.Path, Format: img.Format} }

// CreateOverlay implements Images.
func (Storage) CreateOverlay(ctx context.Context, path string, backing hv.Image, sizeBytes int64) error {
	return noSpace(qemuimg.CreateOverlay(ctx, path, qemuImage(backing), sizeBytes))
}

// CheckOverlay implements Images.
func (Storage) CheckOverlay(_ context.Context, path string, backing hv.Image, sizeBytes int64) (bool, error) {
	empty, err := qemuimg.CheckOverlay(path, qemuImage(backing), sizeBytes)
	return empty, noImage(err)
}

// Fold implements Images.
func (Storage) Fold(ctx context.Context, overlay string, into hv.Image) error {
	return noSpace(qemuimg.CommitOffline(ctx, overlay, qemuImage(into), qemuimg.CommitOptions{}))
}

// Create implements Images.
func (Storage) Create(ctx context.Context, img hv.Image, sizeBytes int64) error {
	return noSpace(qemuimg.Create(ctx, qemuImage(img), sizeBytes))
}

// Inspect implements Images.
func (Storage) Inspect(ctx context.Context, path string, format api.Format) (ImageInfo, error) {
	st, err := os.Stat(path)
	if err != nil {
		return ImageInfo{}, noImage(err)
	}
	info := ImageInfo{Block: st.Mode().Type() == os.ModeDevice}
	if !info.Block && !st.Mode().IsRegular() {
		return info, api.Errorf(api.CodeInvalidArgument, "%s is neither a regular file nor a block device", path)
	}
	info.SizeBytes, err = qemuimg.VirtualSize(ctx, qemuimg.Image{Path: path, Format: string(format)})
	if err != nil {
		return info, badImage(path, format, err)
	}
	if !info.Block {
		info.AllocatedBytes, err = qemuimg.AllocatedBytes(path)
	}
	return info, err
}

// badImage says in the user's words what is wrong with an image.
func badImage(path string, format api.Format, err error) error {
	var bad *qemuimg.ImageError
	if errors.As(err, &bad) {
		return api.Errorf(api.CodeUnsupportedDisk, "%s cannot be used as a %s image: %s", path, format, bad.Reason)
	}
	return fmt.Errorf("inspect %s: %w", path, noImage(err))
}

// Remove implements Images.
func (Storage) Remove(_ context.Context, path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() == os.ModeDevice {
		return nil // a device is released, not removed
	}
	return atomicfile.Remove(path)
}

// AllocatedBytes implements Images.
func (Storage) AllocatedBytes(path string) (int64, error) { return qemuimg.AllocatedBytes(path) }

// FreeBytes implements Images.
func (Storage) FreeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("look at the filesystem of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// InUse implements Images. A block device that the kernel lends to nobody else
// can be opened exclusively; a file may be what a loop device shows.
func (Storage) InUse(_ context.Context, path string) (string, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if st.Mode().Type() != os.ModeDevice {
		return loopDeviceOf(path)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return "it is mounted, or part of another device", nil
	}
	if err != nil {
		return "", fmt.Errorf("open %s: %w", path, err)
	}
	return "", unix.Close(fd)
}

// loopDeviceOf names the loop device that shows a file, "" if none does.
func loopDeviceOf(path string) (string, error) {
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return "", err
	}
	for _, f := range backing {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // detached since
		}
		if location.SameImage(path, string(text[:max(0, len(text)-1)])) {
			return "it is the file of " + filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(f)))), nil
		}
	}
	return "", nil
}

func noImage(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNoImage
	}
	return err
}

func noSpace(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return api.Errorf(api.CodeNoSpace, "%v", err)
	}
	return err
}
