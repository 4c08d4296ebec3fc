// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/network"
	"github.com/volferry/volferry/daemon/internal/sandbox"
	"github.com/volferry/volferry/internal/medium"
)

// Connect prepares the image at path for a guest of this host. It drops the host's cached pages of
// a block device, because another host may have written to it since. A file is its filesystem's
// task, an export its server's.
func (s Storage) Connect(ctx context.Context, path string) error {
	if medium.IsNetwork(path) {
		return nil
	}
	f, err := s.Files.Open(path, os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("connect %s: %w", path, noImage(err))
	}
	defer func() { _ = f.Close() }()
	if err := dropPages(ctx, s.Privileged, f); err != nil {
		return fmt.Errorf("connect %s: drop what is cached of it: %w", path, err)
	}
	return nil
}

// NotStoredError reports that data written to an image may never get to stable storage. The
// kernel, or the server of an export, reports this once. The next flush still succeeds, and proves
// nothing about earlier writes.
type NotStoredError struct {
	Path string
	Err  error
}

func (e *NotStoredError) Error() string {
	return fmt.Sprintf("what was written to %s may not be on stable storage: %v", e.Path, e.Err)
}

func (e *NotStoredError) Unwrap() error { return e.Err }

// Disconnect is called when the last guest of this host has released the image. When it returns
// nil, the host's cached data of the image is on stable storage and no longer in memory, or there
// is no image. It returns a *NotStoredError as Flush does.
func (s Storage) Disconnect(ctx context.Context, path string) error {
	if medium.IsNetwork(path) {
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
	if err := dropPages(ctx, s.Privileged, f); err != nil {
		return fmt.Errorf("disconnect %s: %w", path, err)
	}
	return nil
}

// Flush puts the cached data of an image on stable storage, in this host or in the server of an
// NBD export. A *NotStoredError means that this failed; any other error, that it was not tried.
func (s Storage) Flush(ctx context.Context, path string) error {
	if medium.IsNBD(path) {
		return flushExport(ctx, s.Network, path)
	}
	if medium.IsNetwork(path) {
		return nil
	}
	f, err := s.Files.Open(path, os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("flush %s: %w", path, err)
	}
	return errors.Join(syncOpen(f), f.Close())
}

// syncOpen is the fsync of Flush. For a descriptor from after the writes, the kernel reports every
// error that it has not reported yet.
func syncOpen(f *os.File) error {
	err := f.Sync()
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EROFS) {
		return err // it has no data to store
	}
	return &NotStoredError{f.Name(), err}
}

// flushExport makes the server of an export flush its cache.
func flushExport(ctx context.Context, at network.Access, path string) error {
	e, err := at.Open(ctx, path, true)
	if err != nil {
		return cannotReach(path, err)
	}
	defer func() { _ = e.Close() }()
	if err := e.Flush(); err != nil { // also without an answer: the server may have forgotten the error
		return &NotStoredError{path, err}
	}
	return nil
}

// dropPages writes back and drops the cached pages of a block device.
func dropPages(ctx context.Context, privileged sandbox.Privileged, f *os.File) error {
	st, err := f.Stat()
	if err != nil || st.Mode().Type() != os.ModeDevice {
		return err
	}
	return privileged.Flush(ctx, f)
}
