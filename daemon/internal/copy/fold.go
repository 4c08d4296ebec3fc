// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"errors"
	"iter"
	"os"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/network"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
)

// FoldSpec describes the fold of an overlay.
type FoldSpec struct {
	Overlay string
	// Into is the target of the fold: raw, at an address, with the overlay's size stated.
	Into    Image
	Network network.Access
	Files   openfile.Files
	// OpenEnd opens Into; nil means an NBD client.
	OpenEnd OpenEnd
}

// Fold writes the overlay's own data into the network image Into, and flushes that image. It
// returns ErrInUse if another program has the overlay open. The overlay does not change, so an
// interrupted fold can be repeated. Until a fold succeeds, only overlay and image together have
// the content.
func Fold(ctx context.Context, f FoldSpec) (err error) {
	sizeBytes := f.Into.SizeBytes
	overlay, err := openOverlay(f.Overlay, f.Files, sizeBytes)
	if err != nil {
		return err
	}
	defer overlay.Close()
	spec := &Spec{Dst: f.Into, Network: f.Network, OpenEnd: f.OpenEnd}
	into, err := spec.openFor(ctx, spec.Dst, true, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, into.Close()) }()
	if into.Size() != sizeBytes {
		return &SizeError{Path: f.Into.Path, Bytes: into.Size(), WantBytes: sizeBytes}
	}
	to := &pair{spec: spec, dst: into}
	err = sweep(ctx, spec.depth(), chunkBytes, overlaySpans(overlay, sizeBytes), func(_ context.Context, s span, buf []byte) error {
		return to.foldSpan(overlay, s, buf)
	})
	if err != nil {
		return err
	}
	return into.Flush()
}

// openOverlay opens an overlay of this size, with the locks that exclude every QEMU, or returns
// ErrInUse.
func openOverlay(path string, files openfile.Files, sizeBytes int64) (*qemuimg.Overlay, error) {
	return qemuimg.OpenOverlay(path, files, sizeBytes, func(file *os.File) error {
		return lockBytes(file, unix.F_WRLCK, qemuLockOffset, qemuLockBytes)
	})
}

func overlaySpans(overlay *qemuimg.Overlay, sizeBytes int64) iter.Seq2[span, error] {
	return func(yield func(span, error) bool) {
		for off := overlay.Next(0); off < sizeBytes; off = overlay.Next(off + chunkBytes) {
			if !yield(span{off: off, n: min(chunkBytes, sizeBytes-off)}, nil) {
				return
			}
		}
	}
}

func (e *pair) foldSpan(overlay *qemuimg.Overlay, s span, buf []byte) error {
	pieces, err := overlay.Pieces(s.off, s.n)
	for _, p := range pieces {
		if p.Zero {
			err = e.zero(p.Offset, p.Bytes)
		} else if err = overlay.Read(buf[:p.Bytes], p); err == nil {
			_, err = e.write(buf[:p.Bytes], p.Offset)
		}
		if err != nil {
			return err
		}
	}
	return err
}
