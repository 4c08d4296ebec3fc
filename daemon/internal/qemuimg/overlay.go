// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/medium"
)

// CreateOverlay makes an empty qcow2 overlay of exactly sizeBytes at path. backing is not opened
// and may be on the network. When it returns nil, the overlay and its directory entry are on
// stable storage. It accepts an existing empty overlay of exactly this backing and size; any other
// file is an error and does not change.
//
// Over an encrypted image the overlay is encrypted too, with the passphrase in about.
func CreateOverlay(ctx context.Context, path string, backing Image, sizeBytes int64, about NewFile) error {
	if err := overlayAt(path, backing).validate(); err != nil {
		return err
	}
	if err := checkKey(about.Passphrase, backing); err != nil {
		return err
	}
	if err := validateBacking(backing); err != nil {
		return err
	}
	err := createWhole(overlayAt(path, backing), about, func(f *os.File) error {
		fill := func(hashMS int64) error {
			_, err := run(ctx, createOverlayArgs(childFile(0), backing, sizeBytes, hashMS), childOptions{files: []*os.File{f}, passphrase: about.Passphrase})
			return err
		}
		if backing.LUKS {
			return fillAsHardToOpen(f, backing, func(hashMS int64) error { return untilTimed(func() error { return fill(hashMS) }) })
		}
		return fill(0)
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

// overlayAt returns an overlay over backing, in one of Volferry's directories. Other hosts may
// write there, so the overlay may be only where Files permits.
func overlayAt(path string, backing Image) Image {
	return Image{Path: path, Format: FormatQCOW2, LUKS: backing.LUKS, Files: backing.Files}
}

// validateBacking refuses an image that may not be in an overlay's header. An image on the network
// must be raw.
func validateBacking(backing Image) error {
	kind := medium.Of(backing.Path)
	switch {
	case backing.LUKS && (kind.Raw || backing.Format != FormatRaw):
		return &ImageError{backing.Path, "only a raw file or device can be a LUKS container"}
	case kind.Path:
		return backing.validate()
	case kind.Raw && backing.Format != FormatRaw:
		return &ImageError{backing.Path, "what is at an address can only be raw"}
	}
	return kind.Check(backing.Path)
}

// CheckOverlay reads the header of the overlay at path, and reports whether the overlay is empty:
// no cluster is allocated, so that it reads as backing. It returns an *ImageError if the file is
// not an overlay of exactly this backing with the same encryption, a *SizeError if its size
// differs, and fs.ErrNotExist if there is none.
func CheckOverlay(path string, backing Image, sizeBytes int64) (empty bool, err error) {
	o, h, err := openOverlay(overlayAt(path, backing), sizeBytes)
	if err != nil {
		return false, err
	}
	defer o.close()
	if h.BackingFile != backing.Path || h.BackingFormat != backing.driver() {
		return false, &ImageError{path, fmt.Sprintf("its backing file is %q (%s), not %s", h.BackingFile, h.BackingFormat, backing)}
	}
	if empty, err = h.empty(o.file); err != nil {
		return false, &ImageError{path, err.Error()}
	}
	return empty, nil
}

// Empty reports whether a qcow2 image has no allocated cluster, so that it reads as zeros, or as
// its backing image.
func Empty(i Image) (bool, error) {
	o, err := openAny(i, os.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer o.close()
	h, err := o.header()
	if err != nil {
		return false, err
	}
	empty, err := h.empty(o.file)
	if err != nil {
		return false, &ImageError{i.Path, err.Error()}
	}
	return empty, nil
}

// openOverlay opens an overlay without a check of its backing image. It does not follow a link.
func openOverlay(overlay Image, sizeBytes int64) (*opened, *Header, error) {
	o, err := openAny(overlay, os.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return nil, nil, err
	}
	h, err := o.overlayHeader(sizeBytes)
	if err != nil {
		o.close()
		return nil, nil, err
	}
	return o, h, nil
}

func (o *opened) overlayHeader(sizeBytes int64) (*Header, error) {
	if err := o.isFile(); err != nil {
		return nil, err
	}
	h, err := o.header()
	switch {
	case err != nil:
		return nil, err
	case h.Version != 3 || h.BackingFile == "":
		return nil, &ImageError{o.Path, "is not an overlay"}
	case h.Snapshots > 0:
		return nil, &ImageError{o.Path, "has internal snapshots"}
	case h.SizeBytes != sizeBytes:
		return nil, &SizeError{o.Path, h.SizeBytes, sizeBytes}
	}
	return h, nil
}

// CommitOptions are the options of CommitOffline.
type CommitOptions struct {
	// Progress gets the finished fraction, 0 to 1. Optional.
	Progress   func(fraction float64)
	Passphrase []byte
}

// CommitOffline folds the overlay into an image of the same size, which need not be the image in
// the overlay's header, and puts that image on stable storage. No other program may have either
// open. The overlay does not change, so an interrupted fold can be repeated. Until a fold
// succeeds, only overlay and image together have the content.
func CommitOffline(ctx context.Context, overlay string, into Image, opts CommitOptions) error {
	if err := overlayAt(overlay, into).validate(); err != nil {
		return err
	}
	if err := checkKey(opts.Passphrase, into); err != nil {
		return err
	}
	base, err := open(into, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer base.close()
	// qemu-img would resize a smaller image, and not write the rest of a larger one.
	top, _, err := openOverlay(overlayAt(overlay, into), base.sizeBytes)
	if err != nil {
		return err
	}
	defer top.close()
	args := commitArgs(top.describe("", 0), base.describe("backing.", 1), commonCache(top, base))
	// qemu-img opens the overlay for writing too, but does not change it.
	_, err = run(ctx, args, childOptions{
		progress: opts.Progress, files: slices.Concat(top.files(), base.files()), written: []int{0, 1}, passphrase: opts.Passphrase,
	})
	if err != nil {
		return err
	}
	return base.sync()
}
