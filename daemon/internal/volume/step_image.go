// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

func (e *env) stepRemoveImage() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *input) error {
		l := in.Volume.Location
		// This check is repeated, because much time may have passed: a file that a guest has open
		// can be unlinked, and its owner would notice too late.
		if err := e.checkUnused(ctx, l.Path, "cannot delete volume "+in.Volume.Name); err != nil {
			return err
		}
		if err := e.checkNoClone(ctx, l.Path, "cannot delete volume "+in.Volume.Name); err != nil {
			return err
		}
		if err := e.checkLeft(ctx, in.Volume.ID, "cannot delete volume "+in.Volume.Name); err != nil {
			return err
		}
		if mine, err := e.hasPlace(ctx, in, api.VolumeDeleting); err != nil {
			return err
		} else if !mine {
			return api.Errorf(api.CodeConflict, "cannot delete volume %s: somebody else has deleted it meanwhile, so what is at %s now may be another volume's; nothing was removed",
				in.Volume.Name, l.Path)
		}
		if err := image.CheckDevice(ctx, l, e.Images.Fingerprint); err != nil {
			return image.Prefixed("cannot delete volume "+in.Volume.Name, err)
		}
		if l.Pool == "" {
			return e.Files.Remove(ctx, in.Unlink)
		}
		found, err := e.inPool(ctx, l)
		if err != nil || found == nil {
			return err
		}
		// A volume that was adopted or moved with another path of its image keeps that path:
		// /dev/mapper/vg-lv, or a link to the pool.
		if same, err := location.SameImage(found.Path, l.Path); err != nil {
			return cannotTell(l.Path, err)
		} else if !same {
			return api.Errorf(api.CodeConflict, "cannot delete volume %s: it was at %s, and pool %s has %s at %s now; was the pool changed?",
				in.Volume.Name, l.Path, l.Pool, l.Name, found.Path)
		}
		return request.HV(e.Pools.DeleteVolume(ctx, l.Pool, l.Name))
	}
	observe := func(ctx context.Context, _ *op.Run, in *input) (op.Observation, error) {
		if l := in.Volume.Location; l.Pool != "" {
			found, err := e.inPool(ctx, l)
			return op.DoneIf(found == nil), err
		}
		return e.observeUnlinked(ctx, in)
	}
	return step("remove_image", do, nil, observe)
}

// hasPlace reports whether the registry still has the volume in this status, so that its place
// belongs to this op. After a fence another host may have deleted the volume by force and have
// another volume there.
func (e *env) hasPlace(ctx context.Context, in *input, status api.VolumeStatus) (bool, error) {
	vol, found, err := e.registered(ctx, in)
	return found && vol.Status == status, err
}

func (e *env) observeUnlinked(ctx context.Context, in *input) (op.Observation, error) {
	at := in.Volume.Location
	if !medium.Of(at.Path).Deletable {
		return op.Done, nil // the image stays
	}
	at.Path = in.Unlink
	info, err := e.Images.Inspect(ctx, at)
	var damaged *api.Error
	switch {
	case errors.Is(err, image.ErrAbsent):
		return op.Done, nil
	case errors.As(err, &damaged):
		return op.NotDone, nil
	case err != nil:
		return op.Unknown, err
	}
	return op.DoneIf(info.Block), nil
}
