// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// RoomError reports that a block device is too small for a qcow2 image.
type RoomError struct {
	Path string
	Room Room
}

func (e *RoomError) Error() string {
	return fmt.Sprintf("%s has %d bytes, and the image may need %d", e.Path, e.Room.DeviceBytes, e.Room.FullBytes)
}

// CreateOnDevice makes a qcow2 image of sizeBytes, which reads as zeros, on a block device, over
// any existing content. The image is on stable storage when CreateOnDevice returns nil. It opens
// the device exclusively, as mounts and volume managers do (ErrBusy). checkDevice checks the open
// device before any write. It returns a *RoomError for a device that the image may outgrow. It may
// be repeated after an interruption.
func CreateOnDevice(ctx context.Context, image Image, sizeBytes int64, checkDevice func(*os.File) error) error {
	path := image.Path
	if err := image.validate(); err != nil {
		return err
	}
	o, err := openAny(image, os.O_RDWR|unix.O_EXCL)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w: %s", ErrBusy, path)
	}
	if err != nil {
		return err
	}
	defer o.close()
	if o.protocol != protocolDevice {
		return &ImageError{path, "is no block device"}
	}
	if err := checkDevice(o.file); err != nil {
		return err
	}
	var room Room
	if room.DeviceBytes, err = o.heldBytes(); err != nil {
		return err
	}
	if room.FullBytes, err = FullBytes(ctx, sizeBytes); err != nil {
		return err
	}
	if room.FullBytes > room.DeviceBytes {
		return &RoomError{path, room}
	}
	if _, err := run(ctx, createArgs(childFile(0), nil, sizeBytes), childOptions{files: []*os.File{o.file}}); err != nil {
		return err
	}
	return o.sync()
}
