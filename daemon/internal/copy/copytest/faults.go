// SPDX-License-Identifier: Apache-2.0

// Package copytest has ends with faults, for tests of the copy engine and of its callers. Each
// embeds a real end and overrides one method.
package copytest

import (
	"io"
	"strings"
	"sync/atomic"

	"github.com/volferry/volferry/daemon/internal/copy"
)

// Wrap opens real ends, and wraps those with this suffix of their path with fault.
func Wrap(suffix string, fault func(copy.End) copy.End) copy.OpenEnd {
	return func(path string, writable bool) (copy.End, error) {
		end, err := copy.OpenFile(path, writable)
		if err != nil || !strings.HasSuffix(path, suffix) {
			return end, err
		}
		return fault(end), nil
	}
}

// BadSector fails every read that touches the byte at Offset.
type BadSector struct {
	copy.End

	Offset int64
	Err    error
}

// ReadAt overrides End.
func (e *BadSector) ReadAt(p []byte, off int64) (int, error) {
	if off <= e.Offset && e.Offset < off+int64(len(p)) {
		return 0, e.Err
	}
	return e.End.ReadAt(p, off)
}

// Nth fails the Nth call, counted from 1, with Err.
type Nth struct {
	N   int64
	Err error

	count atomic.Int64
}

func (n *Nth) next() error {
	if n.count.Add(1) == n.N {
		return n.Err
	}
	return nil
}

// FailNthRead fails the Nth read.
type FailNthRead struct {
	copy.End
	Nth
}

// ReadAt overrides End.
func (e *FailNthRead) ReadAt(p []byte, off int64) (int, error) {
	if err := e.next(); err != nil {
		return 0, err
	}
	return e.End.ReadAt(p, off)
}

// ShortRead ends all reads at the byte at Offset, as a truncated image does.
type ShortRead struct {
	copy.End

	Offset int64
}

// ReadAt overrides End.
func (e *ShortRead) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) <= e.Offset {
		return e.End.ReadAt(p, off)
	}
	n, err := e.End.ReadAt(p[:max(0, e.Offset-off)], off)
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// FailNthWrite fails the Nth write.
type FailNthWrite struct {
	copy.End
	Nth
}

// WriteAt overrides End.
func (e *FailNthWrite) WriteAt(p []byte, off int64) (int, error) {
	if err := e.next(); err != nil {
		return 0, err
	}
	return e.End.WriteAt(p, off)
}

// FailZero fails all calls of Zero.
type FailZero struct {
	copy.End

	Err error
}

// Zero overrides End.
func (e *FailZero) Zero(_, _ int64) error { return e.Err }

// FailNthFlush fails the Nth flush.
type FailNthFlush struct {
	copy.End
	Nth
}

// Flush overrides End.
func (e *FailNthFlush) Flush() error {
	if err := e.next(); err != nil {
		return err
	}
	return e.End.Flush()
}

// FlipByte inverts the byte at Offset when it is written.
type FlipByte struct {
	copy.End

	Offset int64
}

// WriteAt overrides End.
func (e *FlipByte) WriteAt(p []byte, off int64) (int, error) {
	if at := e.Offset - off; at >= 0 && at < int64(len(p)) {
		flipped := append([]byte(nil), p...)
		flipped[at] ^= 0xff
		return e.End.WriteAt(flipped, off)
	}
	return e.End.WriteAt(p, off)
}

// Gate passes writes only while it is open, and reports a waiting write.
type Gate struct {
	copy.End

	Waiting chan<- struct{}
	Open    <-chan struct{}
}

// WriteAt overrides End.
func (e *Gate) WriteAt(p []byte, off int64) (int, error) {
	select {
	case e.Waiting <- struct{}{}:
	default:
	}
	<-e.Open
	return e.End.WriteAt(p, off)
}

// Counter counts the bytes that are read and written.
type Counter struct {
	copy.End

	Read, Written atomic.Int64
}

// ReadAt overrides End.
func (e *Counter) ReadAt(p []byte, off int64) (int, error) {
	n, err := e.End.ReadAt(p, off)
	e.Read.Add(int64(n))
	return n, err
}

// WriteAt overrides End.
func (e *Counter) WriteAt(p []byte, off int64) (int, error) {
	n, err := e.End.WriteAt(p, off)
	e.Written.Add(int64(n))
	return n, err
}
