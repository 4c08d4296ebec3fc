// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/network"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

// A storage gives a copy access to one kind of images.
type storage interface {
	opener(ctx context.Context) OpenEnd
	// sizeBytes returns the size of an image, or of the part of it that is copied.
	sizeBytes(ctx context.Context, i Image) (int64, error)
}

type hostStorage struct{ files openfile.Files }

func (h hostStorage) opener(context.Context) OpenEnd {
	return func(path string, writable bool) (End, error) { return openFile(h.files, path, writable, unix.O_DIRECT) }
}

func (h hostStorage) sizeBytes(ctx context.Context, i Image) (int64, error) {
	return qemuimg.VirtualSize(ctx, h.image(i))
}

func (h hostStorage) image(i Image) qemuimg.Image {
	img := i.image()
	img.Files = h.files
	return img
}

type serverStorage struct{ access network.Access }

func (s serverStorage) opener(ctx context.Context) OpenEnd {
	return func(path string, writable bool) (End, error) { return openExport(ctx, s.access, path, writable) }
}

func (s serverStorage) sizeBytes(ctx context.Context, i Image) (int64, error) {
	n, err := s.access.SizeBytes(ctx, i.Path)
	if err == nil && i.Slice && n > i.SizeBytes {
		n = i.SizeBytes
	}
	return n, err
}
