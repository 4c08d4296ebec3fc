// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// Grow makes an image file sizeBytes large. The caller must flush it: a sync by Grow could consume
// the kernel's only report of a lost write. The added bytes read as zeros and take no space yet.
// It returns nil if the file has this size, and a *SizeError, without a change, if it is larger. A
// symbolic link or a device is an *ImageError. No other program may have the image open; for a
// qcow2 image QEMU's lock ensures that (*CommandError).
func Grow(ctx context.Context, image Image, sizeBytes int64) error {
	o, err := open(image, os.O_RDWR|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer o.close()
	err = o.isFile()
	switch {
	case err != nil:
	case o.sizeBytes > sizeBytes:
		err = &SizeError{image.Path, o.sizeBytes, sizeBytes}
	case o.sizeBytes == sizeBytes:
	case image.Format == FormatRaw:
		err = o.file.Truncate(sizeBytes)
	default:
		_, err = run(ctx, resizeArgs(childFile(0), sizeBytes), childOptions{files: []*os.File{o.file}})
	}
	return err
}
