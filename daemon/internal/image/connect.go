// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// NotStoredError says that what was written to an image may not be on stable storage, and never get
// there: the kernel, or the server of an export, says so once. The next flush succeeds all the
// same, and proves nothing of what was written before it.
type NotStoredError struct {
	Path string
	Err  error
}

func (e *NotStoredError) Error() string {
	return fmt.Sprintf("what was written to %s may not be on stable storage: %v", e.Path, e.Err)
}

func (e *NotStoredError) Unwrap() error { return e.Err }

// Disconnect is called when the last guest of this host has let go of the image. When it returns
// nil, everything that the host had in memory of the image is on stable storage and no longer in
// memory, or the image is gone, of which nothing is in memory. It returns a *NotStoredError as
// Flush does.
func (s Storage) Disconnect(ctx context.Context, path string) error {
	if api.IsNetwork(path) {
		return nil
	}
	f, err := s.Files.Open(path, os.O_RDONLY)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.EIO), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ESTALE):
		return &NotStoredError{path, err}
	default:
		return fmt.Errorf("disconnect %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	if err := syncOpen(f); err != nil {
		return err
	}
	if err := s.dropPages(ctx, f); err != nil {
		return fmt.Errorf("disconnect %s: %w", path, err)
	}
	return nil
}

// Flush puts on stable storage what this host, or the server of an NBD export, has in memory of an
// image. A *NotStoredError says that it could not; any other error, that it was not tried.
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
	return errors.Join(syncOpen(f), f.Close())
}

// syncOpen is the fsync of Flush. The descriptor was opened after the writes: the kernel tells it
// what it has told nobody yet.
func syncOpen(f *os.File) error {
	err := f.Sync()
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EROFS) {
		return err // there is nothing of which it could be said
	}
	return &NotStoredError{f.Name(), err}
}

// flushExport has the server of an export write what it has in memory.
func (s Storage) flushExport(ctx context.Context, path string) error {
	e, err := s.Network.Open(ctx, path, true)
	if err != nil {
		return cannotReach(path, err)
	}
	defer func() { _ = e.Close() }()
	if err := e.Flush(); err != nil { // also one that was not answered: the server may have met the error, and forgotten it
		return &NotStoredError{path, err}
	}
	return nil
}

// dropPages writes back and forgets what is cached of a block device.
func (s Storage) dropPages(ctx context.Context, f *os.File) error {
	st, err := f.Stat()
	if err != nil || st.Mode().Type() != os.ModeDevice {
		return err
	}
	return s.Privileged.Flush(ctx, f)
}
