// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/shell"
)

// stepReserve reserves the volume, so that no host may attach, move or delete it. It has no
// Observe, because a fence may end the reservation right after the observation; stepGrow checks
// the reservation.
func (e *env) stepReserve() op.Step {
	do := func(ctx context.Context, r *op.Run, in *resizeInput) error {
		_, err := e.Changes.BeginResize(ctx, r.OpID()+"."+stepNameReserve, in.VolumeID, api.VolumeResizeBegin{
			Host: in.Host, Epoch: in.Epoch, Generation: in.Generation, OpID: r.OpID(),
		})
		return request.Registry(err)
	}
	undo := func(ctx context.Context, r *op.Run, in *resizeInput) error {
		return e.endResize(ctx, r, in, "release", 0)
	}
	return resizeStep(stepNameReserve, do, undo, nil)
}

// stepGrow makes the image larger: by the QEMU that has it open, or directly. It has no undo,
// because a guest may use the new size once it sees it.
func (e *env) stepGrow() op.Step {
	do := func(ctx context.Context, r *op.Run, in *resizeInput) error {
		now, err := e.sizesNow(ctx, in)
		if err != nil {
			return err
		}
		_, held, err := e.reserved(ctx, r, in)
		switch {
		case err != nil:
			return err
		case !held:
			return in.cannot(api.CodeConflict, "it is not kept for this any more, because this host was fenced or the registry restored; its image has %s now: ask again", humanize.ExactBytes(now.image)).
				With("found_bytes", now.image)
		case now.are(in.SizeBytes):
			return nil
		case now.image > in.SizeBytes:
			return in.cannot(api.CodeSizeMismatch, "somebody has made its image %s %d bytes large meanwhile", in.Location.Path, now.image).With("found_bytes", now.image)
		}
		return e.grow(ctx, in, now)
	}
	observe := func(ctx context.Context, _ *op.Run, in *resizeInput) (op.Observation, error) {
		now, err := e.sizesNow(ctx, in)
		return op.DoneIf(now.are(in.SizeBytes)), err
	}
	return resizeStep(stepNameGrow, do, nil, observe)
}

func (e *env) grow(ctx context.Context, in *resizeInput, now sizes) error {
	if now.dom == nil {
		if err := e.checkUnused(ctx, in.Location.Path, in.verdict()); err != nil {
			return err
		}
	} else if err := e.checkHolder(ctx, in, now.dom); err != nil {
		return err
	}
	if in.Extends && now.image < in.SizeBytes {
		// The device is extended first, because the guest's process sees only the device's present
		// size.
		if err := e.extend(ctx, in); err != nil {
			return err
		}
		now.image = in.SizeBytes
	}
	switch {
	case in.Location.IsSlice():
		return e.growSlice(ctx, in, now.dom)
	case in.Block && now.image < in.SizeBytes:
		return in.tooSmall(now.image)
	case in.Block && (now.dom == nil || !now.dom.State.Active()):
		return nil
	case now.dom != nil && now.dom.State.Active():
		return e.growUnderGuest(ctx, in)
	}
	err := e.Files.Grow(ctx, in.image(), in.SizeBytes)
	if errors.Is(err, hv.ErrInUse) { // its guest was just started
		return op.Retry(request.BusyDelay, err)
	}
	return err
}

// growUnderGuest makes QEMU grow the image. If the guest ends meanwhile, the next attempt grows
// the image directly.
func (e *env) growUnderGuest(ctx context.Context, in *resizeInput) error {
	err := e.Guests.GrowDisk(ctx, in.InstanceID, in.Device, in.SizeBytes)
	if err == nil {
		return nil
	}
	if now, lookErr := e.sizesNow(ctx, in); lookErr == nil && (now.dom == nil || !now.dom.State.Active()) {
		return op.Retry(request.BusyDelay, err)
	}
	return request.HV(err)
}

// extend makes the pool extend a device. The device's resulting size decides, not the pool's
// answer.
func (e *env) extend(ctx context.Context, in *resizeInput) error {
	why := e.Pools.ExtendVolume(ctx, in.Location.Pool, in.Location.Name, in.SizeBytes)
	info, err := e.inspect(ctx, in)
	switch {
	case err != nil:
		return errors.Join(request.HV(why), err)
	case info.SizeBytes == in.SizeBytes:
		return nil
	case why == nil:
		return in.tooSmall(info.SizeBytes)
	case errors.Is(why, hv.ErrNotFound): // the pool does not know the volume, but its device exists
		return in.cannot(api.CodeNotFound, "%v", why)
	}
	return request.HV(why)
}

// stepRecord reports the volume's size to the registry and ends the reservation. Its output is the
// volume, or none if another host has it. If this host was fenced after the growth, the
// reservation is over, and the registry keeps the old size.
func (e *env) stepRecord() op.Step {
	do := func(ctx context.Context, r *op.Run, in *resizeInput) error {
		if _, held, err := e.reserved(ctx, r, in); err != nil || !held {
			return err
		}
		if err := e.makeLast(ctx, in); err != nil {
			return err
		}
		return e.endResize(ctx, r, in, stepNameRecord, in.SizeBytes)
	}
	observe := func(ctx context.Context, r *op.Run, in *resizeInput) (op.Observation, error) {
		vol, held, err := e.reserved(ctx, r, in)
		switch {
		case err != nil || held:
			return op.NotDone, err
		case vol.ID == "":
			return op.Done, nil
		}
		return op.Done, r.SetOutput(vol)
	}
	return resizeStep(stepNameRecord, do, nil, observe)
}

// makeLast makes the new size durable, which QEMU does not: a size in the registry must survive a
// power cut. If necessary, it first grows the image again.
func (e *env) makeLast(ctx context.Context, in *resizeInput) error {
	now, err := e.sizesNow(ctx, in)
	if err == nil && now.image < in.SizeBytes {
		err = e.grow(ctx, in, now)
	}
	if err != nil {
		return err
	}
	err = e.Files.Sync(ctx, in.Location.Path)
	var lost *image.NotStoredError
	if errors.As(err, &lost) { // another flush would succeed
		return op.UnknownOutcome(in.cannot(api.CodeIOError, "%v. It is %s large, which may not outlive a power cut, and it may lack what its guest wrote last: mend the storage, look at the image (of qcow2 with `%s`, and nobody on it), and make the same call again, which takes it as it is then",
			err, humanize.ExactBytes(in.SizeBytes), shell.Line("qemu-img", "check", "-f", "qcow2", "--", in.Location.Path)))
	}
	return err
}

// reserved returns the volume. held is true if the volume is reserved for this op. The volume is
// zero if it is no longer this host's.
func (e *env) reserved(ctx context.Context, r *op.Run, in *resizeInput) (vol api.Volume, held bool, err error) {
	vol, err = e.Registry.Volume(ctx, in.VolumeID)
	if request.Lost(err) {
		return api.Volume{}, false, nil
	}
	return vol, vol.ResizeOpID == r.OpID(), request.Registry(err)
}

// endResize ends the reservation. sizeBytes is the volume's new size, or 0 if it is unchanged.
func (e *env) endResize(ctx context.Context, r *op.Run, in *resizeInput, what string, sizeBytes int64) error {
	now := func() (int64, error) {
		h, err := e.Registry.Host(ctx, in.Host)
		return h.Epoch, err
	}
	err := request.AsOfNow(in.Epoch, now, func(epoch int64, again string) error {
		_, err := e.Changes.EndResize(ctx, r.OpID()+"."+what+again, in.VolumeID, api.VolumeResizeEnd{
			Host: in.Host, Epoch: epoch, OpID: r.OpID(), SizeBytes: sizeBytes,
		})
		return err
	})
	if request.Lost(err) {
		e.log.Warn("a volume that was resized is not this host's any more", "volume", in.VolumeName, "err", err)
		return nil
	}
	return request.Registry(err)
}
