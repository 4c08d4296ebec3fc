// SPDX-License-Identifier: Apache-2.0

package copy

import "io"

// End is one side of a copy: a raw image that is open. Its methods may be called
// concurrently. If an end lacks an ability, its method falls back (Zero writes zeros,
// Extent calls everything data), so that the engine need not ask. Abilities without a
// fallback have their own interface (Cloner).
type End interface {
	// ReaderAt and WriterAt move whole buffers: fewer bytes come with an error.
	// They are fast for buffers from newBuffer at multiples of 4 KiB, and right
	// for all.
	io.ReaderAt
	io.WriterAt
	// Size is the number of bytes, which never changes.
	Size() int64
	// Extent reports whether the bytes from off on are data or a hole, which reads
	// as zeros, and where that ends. Data may be zeros as well.
	Extent(off int64) (until int64, data bool, err error)
	// Zero makes n bytes from off on read as zeros, and frees their space if it can.
	Zero(off, n int64) error
	// Flush puts everything written on stable storage. Later reads come from there and not
	// from a cache.
	Flush() error
	Close() error
}

// Cloner is an End that may be able to share the space of another End.
type Cloner interface {
	// CloneFrom makes the end's content that of src without moving bytes. It returns
	// errors.ErrUnsupported if these two cannot, and then nothing has changed.
	CloneFrom(src End) error
}

// OpenEnd opens the raw image at path.
type OpenEnd func(path string, writable bool) (End, error)
