// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
)

// beginning resizes a volume that is only the first part of its image (api.Location.IsSlice): the
// volume gets more of the image. Only the size in the instance's definition and in the registry
// changes. QEMU cannot enlarge the volume while its guest runs.
type beginning struct{ in *resizeInput }

func (b beginning) check(ctx context.Context, e *env, foundBytes int64) error {
	if b.in.InstanceID == "" {
		return b.checkSize(foundBytes, nil)
	}
	dom, err := e.Guests.Domain(ctx, b.in.InstanceID)
	if err != nil {
		return fmt.Errorf("read instance %s: %w", b.in.InstanceName, err)
	}
	return b.checkSize(foundBytes, dom)
}

func (b beginning) checkSize(foundBytes int64, dom *hv.Domain) error {
	in, l := b.in, b.in.Location
	switch {
	case foundBytes < in.SizeBytes:
		return in.cannot(api.CodeUnsupportedDisk, "it is the beginning of %s, which has %s in all; say that size or a smaller one, or make %s larger first, where it was made",
			l.Path, humanize.ExactBytes(foundBytes), l.Path).With("found_bytes", foundBytes).With("size_bytes", in.SizeBytes)
	case in.SizeBytes >= l.ImageBytes && in.SizeBytes != foundBytes: // the registry has the image's old size
		return in.cannot(api.CodeUnsupportedDisk, "it is the beginning of %s, which was made larger since: it had %s in all and has %s; say less than the one, or all of the other",
			l.Path, humanize.ExactBytes(l.ImageBytes), humanize.ExactBytes(foundBytes)).With("found_bytes", foundBytes).With("size_bytes", in.SizeBytes)
	case dom != nil && b.bytes(dom, foundBytes) > in.SizeBytes: // from an interrupted resize
		has := b.bytes(dom, foundBytes)
		return in.cannot(api.CodeInvalidArgument, "its disk of instance %s has %s of %s already, and %s is less; say that size, or a larger one",
			dom.Name, humanize.ExactBytes(has), l.Path, humanize.ExactBytes(in.SizeBytes)).With("found_bytes", has)
	case dom != nil && dom.State.Active() && in.SizeBytes != sliceOf(dom.LiveDisk(in.Device), foundBytes):
		return in.cannot(api.CodeUnsupportedDisk, "it is the beginning of %s, and QEMU gives a running guest no more of that; shut instance %s down and ask again, or move the volume to a place of its own size",
			l.Path, dom.Name)
	}
	return nil
}

// bytes returns the size in the instance's definition. Without an instance no size on this host
// has to change, and it returns the requested size.
func (b beginning) bytes(dom *hv.Domain, imageBytes int64) int64 {
	if dom == nil {
		return b.in.SizeBytes
	}
	return sliceOf(dom.ConfigDisk(b.in.Device), imageBytes)
}

func sliceOf(disk *hv.Disk, imageBytes int64) int64 {
	if disk == nil || disk.Top().SliceBytes == 0 {
		return imageBytes
	}
	return disk.Top().SliceBytes
}

// on returns the location with the old size or, if an interrupted resize gave the disk a larger
// part of the image, with the disk's size.
func (b beginning) on(disk *hv.Disk) api.Location {
	l := b.in.Location
	switch has := disk.Top().SliceBytes; {
	case has == 0:
		l.ImageBytes = 0 // the disk is the whole image
	case has > l.SizeBytes:
		l.SizeBytes = has
	}
	return l
}

func (e *env) growSlice(ctx context.Context, in *resizeInput, dom *hv.Domain) error {
	info, err := e.inspect(ctx, in)
	if err != nil {
		return err
	}
	if err := (beginning{in}).checkSize(info.SizeBytes, dom); err != nil || dom == nil {
		return err
	}
	err = e.Guests.SetConfigChain(ctx, in.InstanceID, in.Device, location.Chain(in.Location.Resized(in.SizeBytes), in.Block))
	if errors.Is(err, hv.ErrNotFound) {
		return in.chainChanged(dom)
	}
	return request.HV(err)
}
