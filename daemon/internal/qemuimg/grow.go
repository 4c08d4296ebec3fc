// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Grow makes an image file sizeBytes large, on stable storage when it returns nil. What
// is added reads as zeros and takes no room yet. A file that has this size is no error;
// one that is larger is left as it is: *SizeError. The path must be that of the file
// itself: a symbolic link and a device are an *ImageError. Nobody else may have the image
// open, which the lock of a QEMU that has a qcow2 image prevents (*CommandError).
func Grow(ctx context.Context, image Image, sizeBytes int64) (err error) {
	if err := image.validate(); err != nil {
		return err
	}
	f, err := openItself(image.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := sizeOf(f, image)
	switch {
	case err != nil:
		return err
	case size > sizeBytes:
		return &SizeError{image.Path, size, sizeBytes}
	case size == sizeBytes:
	case image.Format == FormatRaw:
		err = f.Truncate(sizeBytes)
	default:
		_, err = run(ctx, resizeArgs(childFile, sizeBytes), childOptions{file: f})
	}
	if err != nil {
		return err
	}
	return f.Sync()
}

// openItself opens a regular file for writing, and nothing that a link leads to.
func openItself(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, &ImageError{path, "it is a symbolic link"}
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = &ImageError{path, "it is no regular file"}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sizeOf is the virtual size of the open image, which must stand alone.
func sizeOf(f *os.File, image Image) (int64, error) {
	if image.Format == FormatRaw {
		st, err := f.Stat()
		if err != nil {
			return 0, err
		}
		return st.Size(), nil
	}
	h, err := parseHeader(f)
	if err != nil {
		return 0, &ImageError{image.Path, err.Error()}
	}
	return h.SizeBytes, h.standsAlone(image.Path)
}
