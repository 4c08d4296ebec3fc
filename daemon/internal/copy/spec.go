// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/volferry/volferry/daemon/internal/network"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/internal/medium"
)

// Spec describes a copy. Only Src and Dst are required.
type Spec struct {
	// Src is read; it has no writers. Dst exists and has the same size. Both may be raw NBD
	// exports.
	Src, Dst Image
	// IsDst, if set, checks the open file or device of dst before the first write to it. Its error
	// ends the copy.
	IsDst func(dst *os.File) error
	// Begins, if set, is called right before the first write, with dst open. Its error ends the
	// copy.
	Begins func() error
	// ThinBlockBytes, if set, is called with the open dst if that is a block device. It returns
	// the size of the blocks that read as zeros from a discard to the next write (package thin),
	// or 0.
	ThinBlockBytes func(dst *os.File) int64
	Offload        *Offload
	// KeepBase: Src and Dst are qcow2 images over the same base images, and only Src's own bytes
	// are copied. Dst itself has only bytes of this copy.
	KeepBase bool
	Verify   bool
	// DstIsZero: dst reads as zeros: the caller has just created it, and only this copy writes to
	// it.
	DstIsZero bool
	// Thick: dst must not share the space of src.
	Thick  bool
	Limit  *Limiter
	Pace   Pacer
	Cursor Cursor
	// Progress is called with the copy's progress, one call at a time. The copy waits for its
	// return.
	Progress   func(Progress)
	Passphrase []byte
	// Workers is the number of chunks in flight, 1 to 16. 0 means 8, or more if that is faster.
	Workers int
	// OpenEnd opens raw images. Nil means OpenFile, and an NBD client for an address. It exists
	// for other kinds of ends, and for ends with faults.
	OpenEnd OpenEnd
	Files   openfile.Files
	Network network.Access
}

func (s *Spec) depth() *depth {
	if s.Workers <= 0 {
		return fixedDepth(defaultWorkers)
	}
	return fixedDepth(min(s.Workers, maxWorkers))
}

func (s *Spec) bestDepth() *depth {
	if s.Workers <= 0 {
		return adaptiveDepth()
	}
	return s.depth()
}

func (s *Spec) image(i Image) qemuimg.Image {
	return hostStorage{s.Files}.image(i)
}

func (s *Spec) storageOf(i Image) storage {
	if medium.Of(i.Path).Path {
		return hostStorage{s.Files}
	}
	return serverStorage{s.Network}
}

func (s *Spec) open(ctx context.Context, i Image) (End, error) { return s.openFor(ctx, i, false, nil) }

func (s *Spec) openDst(ctx context.Context, lock *os.File) (End, error) {
	return s.openFor(ctx, s.Dst, true, func(opened *os.File) error { return sameOpenFile(lock, opened) })
}

// openFor opens an image. If QEMU serves the image, the function check must first accept the open
// file.
func (s *Spec) openFor(ctx context.Context, i Image, writable bool, check func(*os.File) error) (End, error) {
	if i.Format != qemuimg.FormatRaw || i.LUKS {
		return openServed(ctx, s.image(i), s.KeepBase, qemuimg.ServeOptions{Writable: writable, Is: check, Passphrase: s.Passphrase})
	}
	openEnd := s.OpenEnd
	if openEnd == nil {
		openEnd = s.storageOf(i).opener(ctx)
	}
	end, err := openEnd(i.Path, writable)
	if err != nil || !i.Slice {
		return end, err
	}
	return newSlice(end, i)
}

func (s *Spec) askThin(file *os.File, dst End) {
	if f := fileOf(dst); f != nil && !f.regular && s.ThinBlockBytes != nil {
		f.thinBlockBytes.Store(s.ThinBlockBytes(file))
	}
}

// sizeBytes makes all checks that open no image for writing, and returns the size of both images.
func (s *Spec) sizeBytes(ctx context.Context) (int64, error) {
	n, err := s.sameSize(ctx)
	if err != nil {
		return 0, err
	}
	src := s.Src.image()
	for from := &src; from != nil; from = from.Backing {
		if err := s.notDst(from.Path); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func (s *Spec) notDst(path string) error {
	same, err := sameImage(path, s.Dst.Path)
	if err == nil && same {
		err = fmt.Errorf("%w: %s and %s", ErrSameImage, path, s.Dst.Path)
	}
	return err
}

func (s *Spec) sameSize(ctx context.Context) (int64, error) {
	srcBytes, err := s.statedSize(ctx, s.Src)
	if err != nil {
		return 0, fmt.Errorf("read size of source: %w", err)
	}
	dstBytes, err := s.statedSize(ctx, s.Dst)
	if err != nil {
		return 0, fmt.Errorf("read size of destination: %w", err)
	}
	if srcBytes != dstBytes {
		return 0, &SizeError{Path: s.Dst.Path, Bytes: dstBytes, WantBytes: srcBytes}
	}
	return srcBytes, nil
}

func (s *Spec) statedSize(ctx context.Context, i Image) (n int64, err error) {
	n, err = s.storageOf(i).sizeBytes(ctx, i)
	if err == nil && i.SizeBytes != 0 && i.SizeBytes != n {
		err = &SizeError{Path: i.Path, Bytes: n, WantBytes: i.SizeBytes}
	}
	return n, err
}

func sameImage(a, b string) (bool, error) {
	if !medium.Of(a).Path || !medium.Of(b).Path {
		return a == b, nil
	}
	statA, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	statB, err := os.Stat(b)
	if err != nil {
		return false, err
	}
	if os.SameFile(statA, statB) {
		return true, nil
	}
	sysA, okA := statA.Sys().(*syscall.Stat_t)
	sysB, okB := statB.Sys().(*syscall.Stat_t)
	devices := statA.Mode()&os.ModeDevice != 0 && statB.Mode()&os.ModeDevice != 0
	return devices && okA && okB && sysA.Rdev == sysB.Rdev, nil
}
