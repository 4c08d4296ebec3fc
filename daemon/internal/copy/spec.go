// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/daemon/internal/network"
	"github.com/volferry/volferry/daemon/internal/openfile"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/internal/api"
)

// Spec says what to copy and how. Only Src and Dst are required.
type Spec struct {
	// Src is read, and nobody writes to it. Dst exists and has the same size. Both may be NBD
	// exports, raw.
	Src, Dst Image
	// IsDst, if set, checks the open dst, where that is a file or device, before anything is
	// written to it: an error ends the copy.
	IsDst func(dst *os.File) error
	// Begins, if set, is called right before the first byte is written, with dst open: an error
	// ends the copy.
	Begins func() error
	// ThinBlockBytes, if set, is called with the open dst where that is a block device. It
	// returns the size of the blocks that read as zeros after they were discarded, until
	// somebody writes to them (package thin), or 0 if dst does not promise that.
	ThinBlockBytes func(dst *os.File) int64
	// Offload, if set, is how the storage that has both ends copies between them by itself.
	Offload *Offload
	// KeepBase says that Src and Dst are qcow2 images over the same base images, whose bytes show
	// through in both where Src has none itself: what it has is copied, and nothing else. Dst has
	// nothing but what an earlier run of this copy wrote.
	KeepBase bool
	// Verify reads dst back after the copy.
	Verify bool
	// DstIsZero says that dst reads as zeros everywhere, because the caller has just
	// created it and nobody but this copy has written to it since.
	DstIsZero bool
	// Thick says that dst has room of its own, which it is to keep: it is not made to share that of
	// src.
	Thick bool
	// Limit caps the copy and its verification.
	Limit *Limiter
	// Pace gives way to the guest.
	Pace Pacer
	// Cursor lets a later run go on where this one ended.
	Cursor Cursor
	// Progress is called with how far the copy is, one call at a time. The copy waits until
	// it returns.
	Progress func(Progress)
	// Passphrase opens the images of a comparison that are LUKS.
	Passphrase []byte
	// Workers is how many chunks are in flight, 1 to 16; with 0 it is 8 or, in a copy and its
	// verification, as many from 8 on as are worth it.
	Workers int
	// OpenEnd opens raw images; nil is OpenFile, and a client of NBD for what is at an address. It
	// is for other kinds of ends, and for ends with faults.
	OpenEnd OpenEnd
	// Files opens what is a file or a device.
	Files openfile.Files
	// Network is how what is no file and no device is reached.
	Network network.Access
}

// depth is how many chunks are in flight where two buffers of a chunk are needed, or where it is
// over soon.
func (s *Spec) depth() *depth {
	if s.Workers <= 0 {
		return fixedDepth(defaultWorkers)
	}
	return fixedDepth(min(s.Workers, maxWorkers))
}

// bestDepth is as many as are worth it.
func (s *Spec) bestDepth() *depth {
	if s.Workers <= 0 {
		return adaptiveDepth()
	}
	return s.depth()
}

// image is an image as QEMU's programs get it.
func (s *Spec) image(i Image) qemuimg.Image {
	img := i.image()
	img.Files = s.Files
	return img
}

// open opens an image that is read.
func (s *Spec) open(ctx context.Context, i Image) (End, error) { return s.openFor(ctx, i, false, nil) }

// openDst opens Dst, which is the file that is locked.
func (s *Spec) openDst(ctx context.Context, lock *os.File) (End, error) {
	return s.openFor(ctx, s.Dst, true, func(opened *os.File) error { return sameOpenFile(lock, opened) })
}

// openFor opens an image. One of QEMU's own formats is opened by QEMU, and is checks the file of
// it.
func (s *Spec) openFor(ctx context.Context, i Image, writable bool, is func(*os.File) error) (End, error) {
	openEnd := s.OpenEnd
	switch {
	case i.Format != qemuimg.FormatRaw, i.LUKS:
		return openServed(ctx, s.image(i), s.KeepBase, qemuimg.ServeOptions{Writable: writable, Is: is, Passphrase: s.Passphrase})
	case openEnd != nil:
	case api.IsNetwork(i.Path):
		openEnd = func(path string, writable bool) (End, error) { return openExport(ctx, s.Network, path, writable) }
	default:
		openEnd = func(path string, writable bool) (End, error) { return openFile(s.Files, path, writable, unix.O_DIRECT) }
	}
	end, err := openEnd(i.Path, writable)
	if err != nil || !i.Slice {
		return end, err
	}
	return newSlice(end, i)
}

// askThin finds out how dst, whose open file is given, gives space back.
func (s *Spec) askThin(file *os.File, dst End) {
	if f := fileOf(dst); f != nil && !f.regular && s.ThinBlockBytes != nil {
		f.thinBlockBytes.Store(s.ThinBlockBytes(file))
	}
}

// sizeBytes checks everything that can be checked without opening for writing,
// and returns the size that both images have.
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

// notDst refuses an image that is Dst, by whatever name.
func (s *Spec) notDst(path string) error {
	same, err := sameImage(path, s.Dst.Path)
	if err == nil && same {
		err = fmt.Errorf("%w: %s and %s", ErrSameImage, path, s.Dst.Path)
	}
	return err
}

// sameSize is the size that both images have.
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

// statedSize reads the size of an image and holds it against the stated one.
func (s *Spec) statedSize(ctx context.Context, i Image) (n int64, err error) {
	if api.IsNetwork(i.Path) {
		n, err = s.Network.SizeBytes(ctx, i.Path)
		if err == nil && i.Slice && n > i.SizeBytes {
			n = i.SizeBytes
		}
	} else {
		n, err = qemuimg.VirtualSize(ctx, s.image(i))
	}
	if err == nil && i.SizeBytes != 0 && i.SizeBytes != n {
		err = &SizeError{Path: i.Path, Bytes: n, WantBytes: i.SizeBytes}
	}
	return n, err
}

// sameImage reports whether two paths are one file, or nodes of one device.
func sameImage(a, b string) (bool, error) {
	if api.IsNetwork(a) || api.IsNetwork(b) {
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
