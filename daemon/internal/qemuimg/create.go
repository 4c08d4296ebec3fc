// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Create makes a new image file that reads as zeros, or as its backing image. The file is on
// stable storage when Create returns nil. It returns fs.ErrExist if the path exists. A crash
// leaves nothing or the complete image.
func Create(ctx context.Context, image Image, sizeBytes int64, about NewFile) error {
	if err := image.validate(); err != nil {
		return err
	}
	if image.Backing != nil && image.Format != FormatQCOW2 {
		return &ImageError{image.Path, "only a qcow2 image can be over another one"}
	}
	return createWhole(image, about, func(f *os.File) error {
		if image.Format == FormatRaw {
			return f.Truncate(sizeBytes)
		}
		_, err := run(ctx, createArgs(childFile(0), image.Backing, sizeBytes), childOptions{files: []*os.File{f}})
		return err
	})
}

// VirtualSize returns the number of bytes that a guest sees: the size of a raw file or block
// device, or the size in a qcow2 header. It returns an *ImageError for an unusable image.
func VirtualSize(_ context.Context, image Image) (int64, error) {
	o, err := open(image, os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer o.close()
	return o.sizeBytes, nil
}

// AllocatedBytes returns the space that the file at path takes on its filesystem.
func AllocatedBytes(path string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("stat %s: %w", path, err)
	}
	const blockBytes = 512 // the unit of st_blocks, whatever st_blksize is
	return st.Blocks * blockBytes, nil
}
