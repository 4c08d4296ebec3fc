// SPDX-License-Identifier: Apache-2.0

package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/sandbox"
)

func (h host) connect(ctx context.Context, path string) error {
	f, err := h.Open(path, os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("connect %s: %w", path, noImage(err))
	}
	defer func() { _ = f.Close() }()
	if err := dropPages(ctx, h.privileged, f); err != nil {
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

// FlushUnknown returns the error for a flush during which the daemon died: a later flush would not
// report lost writes again.
func FlushUnknown(path string) error {
	return &NotStoredError{path, errors.New("volferryd ended or was held up while it was flushed")}
}

// FlushNoted flushes an image. If alone is true, no other flush reports the image's lost writes:
// FlushNoted first notes that a flush has no result yet, and takes the note back unless writes may
// be lost.
func FlushNoted(ctx context.Context, alone bool, note func(flushing bool) error, flush func() error) error {
	if alone {
		if err := note(true); err != nil {
			return err
		}
	}
	err := flush()
	var lost *NotStoredError
	if !alone || errors.As(err, &lost) || ctx.Err() != nil {
		return err
	}
	return cmp.Or(note(false), err)
}

func (h host) disconnect(ctx context.Context, path string) error {
	f, err := h.Open(path, os.O_RDONLY)
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
	if err := dropPages(ctx, h.privileged, f); err != nil {
		return fmt.Errorf("disconnect %s: %w", path, err)
	}
	return nil
}

func (h host) flush(_ context.Context, path string) error {
	f, err := h.Open(path, os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("flush %s: %w", path, err)
	}
	return errors.Join(syncOpen(f), f.Close())
}

// syncOpen flushes an open file. Even if f was opened after the writes, the kernel reports every
// write error that it has not reported yet.
func syncOpen(f *os.File) error {
	err := f.Sync()
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EROFS) {
		return err // it has no data to store
	}
	return &NotStoredError{f.Name(), err}
}

func dropPages(ctx context.Context, privileged sandbox.Privileged, f *os.File) error {
	st, err := f.Stat()
	if err != nil || st.Mode().Type() != os.ModeDevice {
		return err
	}
	return privileged.Flush(ctx, f)
}
