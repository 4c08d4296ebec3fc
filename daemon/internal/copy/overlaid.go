// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/internal/medium"
)

// overlaid is an overlay over the given raw image, regardless of the overlay's header.
type overlaid struct {
	End // the image below

	overlay *qemuimg.Overlay
}

// ReadAt reads from an offset that is a multiple of a chunk.
func (o *overlaid) ReadAt(b []byte, off int64) (int, error) {
	n, err := o.End.ReadAt(b, off)
	if err != nil {
		return n, err
	}
	pieces, err := o.overlay.Pieces(off, int64(n))
	for _, p := range pieces {
		part := b[p.Offset-off : min(p.Offset-off+p.Bytes, int64(n))]
		if p.Zero {
			clear(part)
		} else if err = o.overlay.Read(part, p); err != nil {
			break
		}
	}
	return n, err
}

func (o *overlaid) Extent(off int64) (until int64, data bool, err error) {
	next := o.overlay.Next(off)
	if next <= off {
		return min(off+chunkBytes, o.Size()), true, nil
	}
	until, data, err = o.End.Extent(off)
	return min(until, next), data, err
}

func (o *overlaid) Close() error {
	o.overlay.Close()
	return o.End.Close()
}

// atAddress reports whether Src is an overlay over a raw image and that image or Dst is on the
// network, where qemu-img cannot open it.
func (s *Spec) atAddress() bool {
	below := s.Src.Backing
	return s.Src.Format == qemuimg.FormatQCOW2 && below != nil && below.Backing == nil && below.Format == qemuimg.FormatRaw &&
		(!medium.Of(below.Path).Path || !medium.Of(s.Dst.Path).Path)
}

// openOverlaid opens Src for a comparison with dst if atAddress is true. It returns ErrInUse if
// another program has the overlay open.
func (s *Spec) openOverlaid(ctx context.Context, dst End) (End, error) {
	is := s.Src.Backing
	below, err := s.open(ctx, Image{Path: is.Path, Format: qemuimg.FormatRaw, SizeBytes: is.SliceBytes, Slice: is.SliceBytes != 0})
	if err != nil {
		return nil, err
	}
	if below.Size() != dst.Size() {
		return nil, errors.Join(&SizeError{Path: s.Dst.Path, Bytes: dst.Size(), WantBytes: below.Size()}, below.Close())
	}
	overlay, err := openOverlay(s.Src.Path, s.Files, dst.Size())
	if err != nil {
		return nil, errors.Join(err, below.Close())
	}
	return &overlaid{below, overlay}, nil
}
