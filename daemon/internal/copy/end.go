// SPDX-License-Identifier: Apache-2.0

package copy

import "io"

// End is one side of a copy: an open raw image. Its methods may be called concurrently. If the
// storage cannot deallocate, Zero writes zeros; if it does not report holes, Extent reports only
// data. Abilities without such a fallback have their own interface (Cloner).
type End interface {
	// ReaderAt and WriterAt transfer whole buffers, and return an error for fewer bytes. They are
	// fast for buffers from newBuffer at multiples of 4 KiB.
	io.ReaderAt
	io.WriterAt
	// Size returns the size in bytes, which never changes.
	Size() int64
	// Extent reports whether the bytes at off are data or a hole, which reads as zeros, and where
	// that extent ends. Data may be zeros too.
	Extent(off int64) (until int64, data bool, err error)
	// Zero makes n bytes from off read as zeros, and frees their space if it can.
	Zero(off, n int64) error
	// Flush puts all written data on stable storage. Later reads come from the storage.
	Flush() error
	Close() error
}

// Cloner is an End that may be able to share the space of another End.
type Cloner interface {
	// CloneFrom makes the end's content equal to src without moving bytes. It returns
	// errors.ErrUnsupported, and changes nothing, if these ends cannot share.
	CloneFrom(src End) error
}

// OpenEnd opens a raw image.
type OpenEnd func(path string, writable bool) (End, error)
