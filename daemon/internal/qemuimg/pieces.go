// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/openfile"
)

// Overlay is an overlay that this process reads itself. qemu-img would open the backing image that
// the header names, which may be no file, or another image than the target of the fold.
type Overlay struct {
	o  *opened
	h  *Header
	l1 []byte
}

// Piece is a part of an overlay that hides the image below.
type Piece struct {
	Offset, Bytes int64
	// Zero: the piece reads as zeros, and takes no space.
	Zero bool

	at int64 // in the file
}

// OpenOverlay opens the overlay of this size at path. Before it reads, it calls hold, which takes
// the locks that exclude other programs.
func OpenOverlay(path string, files openfile.Files, sizeBytes int64, hold func(*os.File) error) (*Overlay, error) {
	overlay := overlayAt(path, Image{Files: files})
	if err := overlay.validate(); err != nil {
		return nil, err
	}
	o, err := openAny(overlay, os.O_RDWR|unix.O_NOFOLLOW) // for writing: hold locks it
	if err != nil {
		return nil, err
	}
	v := &Overlay{o: o}
	if err = hold(o.file); err == nil {
		err = v.load(sizeBytes)
	}
	if err != nil {
		o.close()
		return nil, err
	}
	return v, nil
}

func (v *Overlay) load(sizeBytes int64) (err error) {
	if v.h, err = v.o.overlayHeader(sizeBytes); err != nil {
		return err
	}
	if v.h.clusterBytes > maxClusterBytes {
		return v.bad("its clusters are larger than those of any overlay of Volferry's")
	}
	v.l1 = make([]byte, v.h.l1Entries*l1EntryBytes)
	if _, err := v.o.file.ReadAt(v.l1, v.h.l1Offset); err != nil {
		return fmt.Errorf("read L1 table of %s: %w", v.o.Path, err)
	}
	if covered := int64(v.h.l1Entries) * v.perTable(); covered < sizeBytes {
		return v.bad("its L1 table is too short")
	}
	return nil
}

// Close closes the overlay, and releases its locks.
func (v *Overlay) Close() { v.o.close() }

const (
	// maxClusterBytes bounds the clusters of an overlay: Pieces gets multiples of it.
	maxClusterBytes = 1 << 20

	l1EntryBytes = 8
	// subclusters of a cluster, in an image with extended L2 entries.
	subclusters = 32

	l2OffsetMask = 0x00fffffffffffe00
	l2Compressed = 1 << 62
	l2Zero       = 1 << 0
)

func (v *Overlay) entryBytes() int64 {
	if v.h.ExtendedL2 {
		return 16
	}
	return 8
}

func (v *Overlay) perTable() int64 { return v.h.clusterBytes / v.entryBytes() * v.h.clusterBytes }

// Next returns the first offset from off on where the overlay may have a piece, or the overlay's
// size. off is a multiple of the cluster size.
func (v *Overlay) Next(off int64) int64 {
	for off < v.h.SizeBytes && v.table(off) == 0 {
		off = (off/v.perTable() + 1) * v.perTable()
	}
	return min(off, v.h.SizeBytes)
}

func (v *Overlay) table(off int64) int64 {
	return int64(binary.BigEndian.Uint64(v.l1[off/v.perTable()*l1EntryBytes:]) & qcow2L1OffsetMask)
}

// Pieces returns the pieces in the n bytes from off on, in order and each as long as possible. off
// is a multiple of the cluster size.
func (v *Overlay) Pieces(off, n int64) (pieces []Piece, err error) {
	entry := make([]byte, v.entryBytes())
	for end := min(off+n, v.h.SizeBytes); off < end; off += v.h.clusterBytes {
		table := v.table(off)
		if table == 0 {
			continue
		}
		if _, err := v.o.file.ReadAt(entry, table+off%v.perTable()/v.h.clusterBytes*v.entryBytes()); err != nil {
			return nil, fmt.Errorf("read L2 table of %s: %w", v.o.Path, err)
		}
		if pieces, err = v.cluster(pieces, entry, off, end); err != nil {
			return nil, err
		}
	}
	return pieces, nil
}

func (v *Overlay) cluster(pieces []Piece, entry []byte, off, end int64) ([]Piece, error) {
	descriptor := binary.BigEndian.Uint64(entry)
	at := int64(descriptor & l2OffsetMask)
	if descriptor&l2Compressed != 0 || at%v.h.clusterBytes != 0 {
		return nil, v.bad("it has a cluster that no overlay of Volferry's has")
	}
	if !v.h.ExtendedL2 {
		zero := descriptor&l2Zero != 0
		if !zero && at == 0 {
			return pieces, nil
		}
		return join(pieces, Piece{off, min(v.h.clusterBytes, end-off), zero, at}), nil
	}
	bits := binary.BigEndian.Uint64(entry[8:])
	data, zeros := uint32(bits), uint32(bits>>subclusters)
	if data&zeros != 0 || data != 0 && at == 0 {
		return nil, v.bad("it has an impossible entry in an L2 table")
	}
	step := v.h.clusterBytes / subclusters
	for i := int64(0); i < subclusters && off+i*step < end; i++ {
		bit := uint32(1) << i
		if (data|zeros)&bit != 0 {
			pieces = join(pieces, Piece{off + i*step, min(step, end-off-i*step), zeros&bit != 0, at + i*step})
		}
	}
	return pieces, nil
}

func join(pieces []Piece, p Piece) []Piece {
	if n := len(pieces) - 1; n >= 0 {
		last := &pieces[n]
		if last.Offset+last.Bytes == p.Offset && last.Zero == p.Zero && (p.Zero || last.at+last.Bytes == p.at) {
			last.Bytes += p.Bytes
			return pieces
		}
	}
	return append(pieces, p)
}

// Read reads a piece that is not Zero into b of the same length. Bytes past the end of the file
// are zeros.
func (v *Overlay) Read(b []byte, p Piece) error {
	n, err := v.o.file.ReadAt(b, p.at)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", v.o.Path, err)
	}
	clear(b[n:])
	return nil
}

func (v *Overlay) bad(reason string) error { return &ImageError{v.o.Path, reason} }
