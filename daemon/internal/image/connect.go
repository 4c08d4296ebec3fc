// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
)

// Connect makes the image at path ready for a guest of this host. It drops what the host
// still has in memory of a block device, because another host may have written to the
// device since. A file needs nothing; its filesystem is responsible, and of an
// export its server.
func (s Storage) Connect(ctx context.Context, path string) error {
	if api.IsNetwork(path) {
		return nil
	}
	f, err := s.Files.Open(path, os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("connect %s: %w", path, noImage(err))
	}
	defer func() { _ = f.Close() }()
	if err := s.dropPages(ctx, f); err != nil {
		return fmt.Errorf("connect %s: drop what is cached of it: %w", path, err)
	}
	return nil
}

// Disconnect is called when the last guest of this host has let go of the image. When it
// returns, everything that the host had in memory of the image is on stable storage and no
// longer in memory. A guest's writes have reached the disk before, so an image that is gone
// or broken by now is no error: nothing could be done about it here.
func (s Storage) Disconnect(ctx context.Context, path string) error {
	if api.IsNetwork(path) {
		return nil
	}
	err := s.flush(ctx, path)
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.EIO), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ESTALE):
		slog.WarnContext(ctx, "an image cannot be flushed any more", "path", path, "err", err)
		return nil
	}
	return fmt.Errorf("disconnect %s: %w", path, err)
}

// Flush puts on stable storage what this host, or the server of an NBD export, has in memory of an image.
func (s Storage) Flush(ctx context.Context, path string) error {
	if api.IsNBD(path) {
		return s.flushExport(ctx, path)
	}
	if api.IsNetwork(path) {
		return nil
	}
	f, err := s.Files.Open(path, os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("flush %s: %w", path, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("flush %s: %w", path, err)
	}
	return nil
}

// flushExport has the server of an export write what it has in memory.
func (s Storage) flushExport(ctx context.Context, path string) error {
	e, err := s.Network.Open(ctx, path, true)
	if err != nil {
		return cannotReach(path, err)
	}
	if err := errors.Join(e.Flush(), e.Close()); err != nil {
		return fmt.Errorf("flush %s: %w", path, err)
	}
	return nil
}

func (s Storage) flush(ctx context.Context, path string) error {
	f, err := s.Files.Open(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := f.Sync(); err != nil {
		return err
	}
	return s.dropPages(ctx, f)
}

// dropPages writes back and forgets what is cached of a block device.
func (s Storage) dropPages(ctx context.Context, f *os.File) error {
	st, err := f.Stat()
	if err != nil || st.Mode().Type() != os.ModeDevice {
		return err
	}
	return s.Privileged.Flush(ctx, f)
}
