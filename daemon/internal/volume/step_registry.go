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
)

// stepRegister registers the volume, with its name and place. check, if not nil, inspects the
// image while no other request can take it. The step's output is the volume.
func (e *env) stepRegister(check func(context.Context, api.Location) error) op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		return e.register(ctx, r.OpID()+".register", in, check)
	}
	// The undo deletes only a row with this op's volume id. A taken name needs no undo.
	undo := func(ctx context.Context, r *op.Run, in *input) error {
		return e.forget(ctx, r.OpID()+".unregister", in)
	}
	observe := func(ctx context.Context, r *op.Run, in *input) (op.Observation, error) {
		vol, found, err := e.registered(ctx, in)
		if err != nil || !found {
			return op.NotDone, err
		}
		return op.Done, r.SetOutput(vol)
	}
	return step(stepNameRegister, do, undo, observe)
}

// register registers the volume, unless its image has another owner under a path that the registry
// does not know.
func (e *env) register(ctx context.Context, opID string, in *input, check func(context.Context, api.Location) error) error {
	path := in.Volume.Location.Path
	holder, err := e.Claims.Take(ctx, path, location.Self{VolumeID: in.Volume.ID}, func() error {
		if check != nil {
			if err := check(ctx, in.Volume.Location); err != nil {
				return err
			}
		}
		_, err := e.Changes.RegisterVolume(ctx, opID, in.Volume)
		return err
	})
	if errors.Is(err, location.ErrCannotTell) {
		return cannotTell(path, err)
	}
	if err != nil {
		return request.HV(request.Registry(err))
	}
	return taken(path, holder)
}

// checkStillThere refuses a missing image: its previous user may have deleted it, for example at
// the end of a move.
func (e *env) checkStillThere(ctx context.Context, l api.Location) error {
	_, err := e.Images.Inspect(ctx, l)
	if errors.Is(err, image.ErrAbsent) {
		return noImage(l.Path)
	}
	return err
}

func noImage(path string) *api.Error {
	return api.Errorf(api.CodeNotFound, "there is no image at %s", path)
}

// stepPublish reports to the registry that the volume is usable, with its image's location. Its
// output is the volume.
func (e *env) stepPublish() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		var made api.Location
		if _, err := r.Output(stepNameCreateImage, &made); err != nil {
			return err
		}
		t := api.VolumeTransition{From: api.VolumeCreating, To: api.VolumeAvailable, Location: &made}
		_, err := e.Changes.TransitionVolume(ctx, r.OpID()+".publish", in.Volume.ID, t)
		return request.Registry(err)
	}
	// A published volume may be attached at once, so any later status also means done.
	observe := func(ctx context.Context, r *op.Run, in *input) (op.Observation, error) {
		vol, found, err := e.registered(ctx, in)
		if err != nil || !found || vol.Status == api.VolumeCreating {
			return op.NotDone, err
		}
		return op.Done, r.SetOutput(vol)
	}
	return step(stepNamePublish, do, nil, observe)
}

// stepClaim claims a volume for its deletion, so that it cannot be attached or migrated.
func (e *env) stepClaim() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		if in.from() == api.VolumeDeleting {
			return nil // an unfinished deletion has claimed it
		}
		t := api.VolumeTransition{From: in.from(), To: api.VolumeDeleting}
		_, err := e.Changes.TransitionVolume(ctx, r.OpID()+".claim", in.Volume.ID, t)
		return request.Registry(err)
	}
	// A volume with incomplete bytes stays deleting.
	undo := func(ctx context.Context, r *op.Run, in *input) error {
		vol, found, err := e.registered(ctx, in)
		if err != nil || !found || vol.Status != api.VolumeDeleting || in.from() != api.VolumeAvailable {
			return err
		}
		t := api.VolumeTransition{From: api.VolumeDeleting, To: api.VolumeAvailable}
		_, err = e.Changes.TransitionVolume(ctx, r.OpID()+".unclaim", in.Volume.ID, t)
		return request.Registry(err)
	}
	observe := func(ctx context.Context, _ *op.Run, in *input) (op.Observation, error) {
		vol, found, err := e.registered(ctx, in)
		return op.DoneIf(found && vol.Status == api.VolumeDeleting), err
	}
	return step("claim", do, undo, observe)
}

// stepForget deletes the volume at the registry.
func (e *env) stepForget() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		return e.forget(ctx, r.OpID()+".forget", in)
	}
	observe := func(ctx context.Context, _ *op.Run, in *input) (op.Observation, error) {
		_, found, err := e.registered(ctx, in)
		return op.DoneIf(!found), err
	}
	return step("forget", do, nil, observe)
}

func (e *env) registered(ctx context.Context, in *input) (vol api.Volume, found bool, err error) {
	vol, err = e.Registry.Volume(ctx, in.Volume.ID)
	if api.CodeOf(err) == api.CodeNotFound {
		return vol, false, nil
	}
	return vol, err == nil, request.Registry(err)
}

func (e *env) forget(ctx context.Context, opID string, in *input) error {
	err := e.Changes.DeleteVolume(ctx, opID, in.Volume.ID)
	if api.CodeOf(err) == api.CodeNotFound {
		return nil
	}
	return request.Registry(err)
}
