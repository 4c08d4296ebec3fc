// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

// The errors shared with package qemuimg.
type (
	// SizeError reports that an image does not have the size of src, or the stated size.
	SizeError = qemuimg.SizeError
	// MismatchError has the first offset where dst differs from src.
	MismatchError = qemuimg.MismatchError
	// ImageError reports that an image cannot be copied.
	ImageError = qemuimg.ImageError
)

var (
	// ErrInUse means that another copy, a guest or a mount holds dst.
	ErrInUse = errors.New("image is in use")
	// ErrSameImage means that src and dst are one file or device.
	ErrSameImage = errors.New("source and destination are the same image")
)

// ReadError reports that Path could not be read at Offset, which is exact to 4 KiB.
type ReadError struct {
	Path   string
	Offset int64
	Err    error
}

func (e *ReadError) Error() string {
	return fmt.Sprintf("read %s at byte %d: %v", e.Path, e.Offset, e.Err)
}

func (e *ReadError) Unwrap() error { return e.Err }

// WriteError reports a failed write to Path that began at Offset.
type WriteError struct {
	Path   string
	Offset int64
	Err    error
}

func (e *WriteError) Error() string {
	return fmt.Sprintf("write %s at byte %d: %v", e.Path, e.Offset, e.Err)
}

func (e *WriteError) Unwrap() error { return e.Err }

// FlushError reports that written bytes of Path may not be on stable storage.
type FlushError struct {
	Path string
	Err  error
}

func (e *FlushError) Error() string { return fmt.Sprintf("flush %s: %v", e.Path, e.Err) }

func (e *FlushError) Unwrap() error { return e.Err }

// UnansweredError reports that the storage has not answered a request to copy a range. It may
// still write to dst, so no other user may get dst.
type UnansweredError struct {
	Path   string
	Offset int64
	Bytes  int64
	// Err is nil if the copy has no storage to ask again.
	Err error
}

func (e *UnansweredError) Error() string {
	text := fmt.Sprintf("the storage was asked to copy %d bytes from byte %d on to %s, and has not said that it is done with them", e.Bytes, e.Offset, e.Path)
	if e.Err == nil {
		return text + "; its pool is not there to be asked again"
	}
	return fmt.Sprintf("%s: %v", text, e.Err)
}

func (e *UnansweredError) Unwrap() error { return e.Err }
