// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/shell"
)

// FullBytes returns the size of a block device that has room for a new qcow2 image with sizeBytes
// of content.
func (Storage) FullBytes(ctx context.Context, sizeBytes int64) (int64, error) {
	return qemuimg.FullBytes(ctx, sizeBytes)
}

// ClusterBytes returns the cluster size of a qcow2 image.
func (s Storage) ClusterBytes(path string) (int64, error) {
	return qemuimg.ClusterBytes(s.host().qcow2At(path))
}

// CheckFits refuses (unsupported_disk) a qcow2 image on a block device that is smaller than the
// image may become: the device does not grow when the guest writes.
func (s Storage) CheckFits(ctx context.Context, l api.Location, info Info) error {
	if !info.Block || l.Format != api.FormatQcow2 {
		return nil
	}
	room, err := qemuimg.RoomOf(ctx, s.host().qcow2At(l.Path))
	if err != nil {
		return badImage(l.Path, l.Format, err)
	}
	if room.FullBytes <= room.DeviceBytes {
		return nil
	}
	return api.Errorf(api.CodeUnsupportedDisk, "%s is a block device of %s, and the qcow2 image on it, a disk of %s, takes %s once all of it is written: nothing here makes the device larger meanwhile, so make it that large first (of LVM with `%s`)",
		l.Path, humanize.ExactBytes(room.DeviceBytes), humanize.ExactBytes(info.SizeBytes), humanize.ExactBytes(room.FullBytes), shell.ExtendVolume(l.Path, room.FullBytes)).
		With("device_bytes", room.DeviceBytes).With("needed_bytes", room.FullBytes)
}

// ReplacedError reports that the image at a path does not have the expected fingerprint.
type ReplacedError struct{ Path, Found string }

func (e *ReplacedError) Error() string { return fmt.Sprintf("%s is another one: %s", e.Path, e.Found) }

// CreateOnDevice durably makes a qcow2 image of sizeBytes, which reads as zeros, on the block
// device at path. It overwrites any content. It refuses a device with another fingerprint
// (*ReplacedError), or one smaller than FullBytes. It may be repeated.
func (s Storage) CreateOnDevice(ctx context.Context, path string, sizeBytes int64, fingerprint string) error {
	err := qemuimg.CreateOnDevice(ctx, s.host().qcow2At(path), sizeBytes, func(device *os.File) error {
		now, err := location.FingerprintOf(device)
		if err == nil && !location.SameImagePrint(fingerprint, now) {
			err = &ReplacedError{path, now}
		}
		return err
	})
	if small := (*qemuimg.RoomError)(nil); errors.As(err, &small) {
		return TooSmallForQcow2(path, small.Room.DeviceBytes, sizeBytes, small.Room.FullBytes)
	}
	if errors.Is(err, qemuimg.ErrBusy) {
		return api.Errorf(api.CodeDstInUse, "%s cannot be written: %v", path, qemuimg.ErrBusy)
	}
	return err
}

// TooSmallForQcow2 is the error for a block device that is too small for a new qcow2 image of
// sizeBytes.
func TooSmallForQcow2(path string, deviceBytes, sizeBytes, fullBytes int64) *api.Error {
	return api.Errorf(api.CodeSizeMismatch, "%s is a block device of %s, and a qcow2 image of %s takes %s once all of it is written: nothing here makes the device larger meanwhile, so name one that has as much, or say --to-format raw",
		path, humanize.ExactBytes(deviceBytes), humanize.ExactBytes(sizeBytes), humanize.ExactBytes(fullBytes)).
		With("device_bytes", deviceBytes).With("needed_bytes", fullBytes)
}
