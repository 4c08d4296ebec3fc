// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// stepRemoveImage deletes the bytes of the volume. A block device in no pool is
// somebody else's to delete, and is left.
func (e *env) stepRemoveImage() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *input) error {
		l := in.Volume.Location
		// Once more, since the checks may be long ago: what a guest has open
		// could still be unlinked, and its owner would learn of it too late.
		if err := e.checkUnused(ctx, l.Path, "cannot delete volume "+in.Volume.Name); err != nil {
			return err
		}
		if mine, err := e.hasPlace(ctx, in, api.VolumeDeleting); err != nil {
			return err
		} else if !mine {
			return api.Errorf(api.CodeConflict, "cannot delete volume %s: somebody else has deleted it meanwhile, so what is at %s now may be another volume's; nothing was removed",
				in.Volume.Name, l.Path)
		}
		if l.Pool == "" {
			return e.Images.Remove(ctx, in.Unlink)
		}
		found, err := e.inPool(ctx, l)
		if err != nil || found == nil {
			return err
		}
		if found.Path != l.Path {
			return api.Errorf(api.CodeConflict, "cannot delete volume %s: it was at %s, and pool %s has %s at %s now; was the pool changed?",
				in.Volume.Name, l.Path, l.Pool, l.Name, found.Path)
		}
		return request.HV(e.HV.DeleteVolume(ctx, l.Pool, l.Name))
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

// hasPlace says whether the volume is still in this status at the registry, and so
// its place is this op's. This host may have been fenced since it was: then another
// one may have deleted the volume by force, and have another one in its place.
func (e *env) hasPlace(ctx context.Context, in *input, status api.VolumeStatus) (bool, error) {
	vol, found, err := e.registered(ctx, in)
	return found && vol.Status == status, err
}

func (e *env) observeUnlinked(ctx context.Context, in *input) (op.Observation, error) {
	info, err := e.Images.Inspect(ctx, in.Unlink, in.Volume.Location.Format)
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

// inPool finds the image at a location in a pool, nil if there is none. A pool
// that is not there or not active is an error: it says nothing about what it
// holds. Errors are typed for the runner.
func (e *env) inPool(ctx context.Context, l api.Location) (*hv.PoolVolume, error) {
	pools, err := e.HV.Pools(ctx)
	if err != nil {
		return nil, request.HV(err)
	}
	if _, err := location.Pool(pools, l.Pool); err != nil {
		return nil, err
	}
	found, err := e.HV.LookupVolume(ctx, l.Pool, l.Name)
	if errors.Is(err, hv.ErrNotFound) {
		return nil, nil
	}
	return found, request.HV(err)
}

// checkUnused refuses an image that a domain of this host names, or that the
// kernel says is in use. Verdict begins the refusal. Errors are typed for the
// runner.
func (e *env) checkUnused(ctx context.Context, path, verdict string) error {
	if err := e.checkNamed(ctx, path, "", verdict); err != nil {
		return err
	}
	return e.checkHeld(ctx, path, verdict)
}

// checkNamed refuses an image that a domain of this host names, but for the one with
// the id that may.
func (e *env) checkNamed(ctx context.Context, path, may, verdict string) error {
	doms, err := e.HV.Domains(ctx)
	if err != nil {
		return request.HV(err)
	}
	doms = slices.DeleteFunc(doms, func(d hv.Domain) bool { return may != "" && d.ID == may })
	domain, target, err := location.DiskOf(doms, path)
	switch {
	case err != nil:
		return api.Errorf(api.CodeStateForbidden, "%s: nobody can tell whether %s is in use: %v; mend that filesystem, or take the disk from that instance", verdict, path, err)
	case domain != "":
		return api.Errorf(api.CodeVolumeInUse, "%s: %s is disk %s of instance %s", verdict, path, target, domain).With("instance", domain)
	}
	return nil
}

// checkHeld refuses an image that the kernel says is in use.
func (e *env) checkHeld(ctx context.Context, path, verdict string) error {
	user, err := e.Images.InUse(ctx, path)
	if err != nil {
		return fmt.Errorf("see who uses %s: %w", path, err)
	}
	if user != "" {
		return api.Errorf(api.CodeVolumeInUse, "%s: %s is in use: %s", verdict, path, user)
	}
	written, err := e.Images.Written(ctx, path)
	if err != nil {
		return fmt.Errorf("see who writes to %s: %w", path, err)
	}
	if written {
		return api.Errorf(api.CodeVolumeInUse, "%s: some process of this host has %s open for writing; `fuser -v %s` says which", verdict, path, path)
	}
	return nil
}
