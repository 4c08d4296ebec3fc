// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// Grow makes an image file sizeBytes large. The caller puts that on stable storage: a sync in here
// could take the kernel's one report of a lost write. The added bytes read as zeros and take no
// room yet. A file that has this size already is no error; a larger file is left as it is:
// *SizeError. The path must be that of the file itself: a symbolic link or a device is an
// *ImageError. Nobody else may have the image open; for a qcow2 image QEMU's lock ensures that
// (*CommandError).
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
