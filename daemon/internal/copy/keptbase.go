// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"iter"

	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

// Layered is an End with base images, which show through where it has no bytes of its own.
type Layered interface {
	End
	// Own reports whether the image itself has the bytes at off, data or zeros, and the end of
	// that range.
	Own(off int64) (until int64, own bool, err error)
}

// keptBase is a copy between two images over the same base images. It writes only the bytes that
// src itself has; the rest shows through in both.
type keptBase struct {
	src, dst  Layered
	inherited []bool
}

func newKeptBase(spec *Spec, src, dst End) (*keptBase, error) {
	s, ok := src.(Layered)
	d, both := dst.(Layered)
	if !ok || !both || spec.DstIsZero || !sameChain(spec.Src.Backing, spec.Dst.Backing) {
		return nil, &ImageError{Path: spec.Dst.Path, Reason: "it is not over the base images of " + spec.Src.Path}
	}
	return &keptBase{src: s, dst: d, inherited: make([]bool, (src.Size()+chunkBytes-1)/chunkBytes)}, nil
}

func sameChain(a, b *qemuimg.Image) bool {
	if a == nil || b == nil {
		return false
	}
	for ; a != nil && b != nil; a, b = a.Backing, b.Backing {
		if a.Path != b.Path || a.Format != b.Format {
			return false
		}
	}
	return a == nil && b == nil
}

// spans divides src into chunks with own bytes of src, and runs of chunks without any.
func (k *keptBase) spans(skip func(chunk int) bool) iter.Seq2[span, error] {
	return func(yield func(span, error) bool) {
		size := k.src.Size()
		for off := int64(0); off < size; {
			next := span{off: off, n: min(chunkBytes, size-off)}
			if skip(next.firstChunk()) {
				off += chunkBytes
				continue
			}
			until, own, err := ownUntil(k.src, off, min(off+maxHoleBytes, size))
			if !own && (until == size || until-off >= chunkBytes) {
				next.inherited = true
				if next.n = until - off; until < size {
					next.n -= next.n % chunkBytes
				}
				next = cutAtSkipped(next, skip)
			}
			if !yield(next, err) || err != nil {
				return
			}
			off += next.n
		}
	}
}

func ownUntil(l Layered, off, end int64) (until int64, own bool, err error) {
	for until = off; until < end; {
		next, has, err := l.Own(until)
		switch {
		case err != nil:
			return 0, false, err
		case until > off && has != own:
			return until, own, nil
		}
		until, own = min(next, end), has
	}
	return until, own, nil
}

// write calls the function write for the parts of p that src itself has. left counts the rest.
func (k *keptBase) write(p []byte, off int64, write func(p []byte, off int64) (int64, error)) (written, left int64, err error) {
	for at, end := off, off+int64(len(p)); at < end; {
		until, own, err := ownUntil(k.src, at, end)
		if err != nil {
			return written, left, err
		}
		if own {
			n, err := write(p[at-off:until-off], at)
			written += n
			if err != nil {
				return written, left, err
			}
		} else {
			left += until - at
		}
		at = until
	}
	return written, left, nil
}

func (k *keptBase) inherit(s span) {
	for i := range s.chunks() {
		k.inherited[s.firstChunk()+i] = true // each element has one writer
	}
}

// verify checks that dst has no bytes of its own where src has none.
func (k *keptBase) verify(ctx context.Context, table *chunkTable, mismatch *firstMismatch) error {
	for chunk, inherited := range k.inherited {
		if !inherited {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		off := int64(chunk) * chunkBytes
		end := off + table.bytesOf(chunk)
		until, own, err := ownUntil(k.dst, off, end)
		switch {
		case err != nil:
			return err
		case own:
			mismatch.found(off)
		case until < end:
			mismatch.found(until)
		}
		table.setVerified(chunk)
	}
	return nil
}
