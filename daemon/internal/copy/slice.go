// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"errors"
	"fmt"
)

// slice is an End for the beginning of a larger image. It is no Cloner, which would clone the
// whole image. It refuses access beyond its size: those bytes belong to another user.
type slice struct {
	End
	path  string
	bytes int64
}

func newSlice(end End, i Image) (End, error) {
	if end.Size() < i.SizeBytes {
		return nil, errors.Join(&SizeError{Path: i.Path, Bytes: end.Size(), WantBytes: i.SizeBytes}, end.Close())
	}
	return slice{end, i.Path, i.SizeBytes}, nil
}

// fileOf returns the file or device of an End, or of the End below a slice, or nil.
func fileOf(end End) *fileEnd {
	if part, is := end.(slice); is {
		end = part.End
	}
	f, _ := end.(*fileEnd)
	return f
}

func (s slice) within(off, n int64) error {
	if off < 0 || n > s.bytes-off {
		return fmt.Errorf("%s: %d bytes from %d on are not all in its first %d bytes", s.path, n, off, s.bytes)
	}
	return nil
}

func (s slice) Size() int64 { return s.bytes }

func (s slice) ReadAt(p []byte, off int64) (int, error) {
	if err := s.within(off, int64(len(p))); err != nil {
		return 0, err
	}
	return s.End.ReadAt(p, off)
}

func (s slice) WriteAt(p []byte, off int64) (int, error) {
	if err := s.within(off, int64(len(p))); err != nil {
		return 0, err
	}
	return s.End.WriteAt(p, off)
}

func (s slice) Zero(off, n int64) error {
	if err := s.within(off, n); err != nil {
		return err
	}
	return s.End.Zero(off, n)
}

func (s slice) Extent(off int64) (until int64, data bool, err error) {
	until, data, err = s.End.Extent(off)
	return min(until, s.bytes), data, err
}
