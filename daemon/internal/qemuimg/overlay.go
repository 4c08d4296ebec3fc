// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// CreateOverlay makes an empty qcow2 overlay of exactly sizeBytes over backing,
// which is not opened, at path, which must not exist. When it returns nil the
// overlay and its directory entry are on stable storage. If path already is an
// empty overlay of exactly this backing and size, as after a repeat, that is
// success; anything else there is left alone and is an error.
func CreateOverlay(ctx context.Context, path string, backing Image, sizeBytes int64, about NewFile) error {
	if err := (Image{path, FormatQCOW2}).validate(); err != nil {
		return err
	}
	if err := backing.validate(); err != nil {
		return err
	}
	err := createWhole(path, about, func(f *os.File) error {
		_, err := run(ctx, createOverlayArgs(childFile, backing, sizeBytes), childOptions{file: f})
		return err
	})
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	empty, err := CheckOverlay(path, backing, sizeBytes)
	if err != nil {
		return err
	}
	if !empty {
		return &ImageError{path, "exists and holds data"}
	}
	return nil
}

// CheckOverlay reads the header of the overlay at path, without qemu-img, and
// says whether it is empty: no cluster allocated, so that it reads as backing.
// It is an *ImageError if it is not an overlay of exactly this backing, and a
// *SizeError if its size is another one. fs.ErrNotExist if there is none.
func CheckOverlay(path string, backing Image, sizeBytes int64) (empty bool, err error) {
	h, err := readOverlay(path, sizeBytes)
	if err != nil {
		return false, err
	}
	if h.BackingFile != backing.Path || h.BackingFormat != backing.Format {
		return false, &ImageError{path, fmt.Sprintf("its backing file is %q (%s), not %s", h.BackingFile, h.BackingFormat, backing)}
	}
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	if empty, err = h.empty(f); err != nil {
		return false, &ImageError{path, err.Error()}
	}
	return empty, nil
}

// readOverlay reads the header of an overlay over anything.
func readOverlay(path string, sizeBytes int64) (*Header, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, &ImageError{path, "is not a regular file"}
	}
	h, err := ReadHeader(path)
	switch {
	case err != nil:
		return nil, err
	case h.Version != 3 || h.BackingFile == "":
		return nil, &ImageError{path, "is not an overlay"}
	case h.Snapshots > 0:
		return nil, &ImageError{path, "has internal snapshots"}
	case h.SizeBytes != sizeBytes:
		return nil, &SizeError{path, h.SizeBytes, sizeBytes}
	}
	return h, nil
}

// CommitOptions are the options of CommitOffline.
type CommitOptions struct {
	// Progress is told what part is done, 0 to 1. Optional.
	Progress func(fraction float64)
	// Throttle paces the child, as in ConvertOptions. Optional.
	Throttle Throttle
}

// CommitOffline folds the overlay into an image of the same size, which need
// not be the one that the overlay's header names, and puts that on stable
// storage. Nothing may have either open. The overlay is not changed, so that a
// fold which was interrupted at any moment is simply run again; until it has
// succeeded only overlay and image together are the content.
func CommitOffline(ctx context.Context, overlay string, into Image, opts CommitOptions) error {
	top := Image{overlay, FormatQCOW2}
	if err := top.validate(); err != nil {
		return err
	}
	_, sizeBytes, err := describe(into)
	if err != nil {
		return err
	}
	protocol, err := probeProtocol(into.Path)
	if err != nil {
		return err
	}
	// qemu-img would resize an image that is too small, and leave the rest of
	// one that is too large.
	if _, err := readOverlay(overlay, sizeBytes); err != nil {
		return err
	}
	cache := commonCache(overlay, into.Path)
	_, err = run(ctx, commitArgs(top, into, protocol, cache), childOptions{progress: opts.Progress, throttle: opts.Throttle})
	if err != nil {
		return err
	}
	return Sync(into.Path)
}
