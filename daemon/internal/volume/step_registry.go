// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// stepRegister takes the volume's name and place at the registry. Check, if not nil, is of the
// image, and is made while nobody takes one. The output is the volume.
func (e *env) stepRegister(check func(context.Context, api.Location) error) op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		return e.register(ctx, r.OpID()+".register", in, check)
	}
	// Only what has our id is ours: where the name was taken there is nothing
	// to take back.
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

// register takes the volume's place, unless its image belongs to somebody by another
// name: of that the registry knows nothing.
func (e *env) register(ctx context.Context, opID string, in *input, check func(context.Context, api.Location) error) error {
	path := in.Volume.Location.Path
	holder, err := e.Claims.Take(ctx, path, location.Self{VolumeID: in.Volume.ID}, func() error {
		if check != nil {
			if err := check(ctx, in.Volume.Location); err != nil {
				return err
			}
		}
		_, err := e.Registry.RegisterVolume(ctx, opID, in.Volume)
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

// checkStillThere refuses an image that is gone: who had it until now may have deleted it since it
// was looked at, as the end of a move deletes its source.
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

// stepPublish says that the volume may be used, and where its bytes came to
// be. The output is the volume.
func (e *env) stepPublish() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		var made api.Location
		if _, err := r.Output(stepNameCreateImage, &made); err != nil {
			return err
		}
		t := api.VolumeTransition{From: api.VolumeCreating, To: api.VolumeAvailable, Location: &made}
		_, err := e.Registry.TransitionVolume(ctx, r.OpID()+".publish", in.Volume.ID, t)
		return request.Registry(err)
	}
	// Once it is published somebody may attach it at once, so any status but
	// the first means that it happened.
	observe := func(ctx context.Context, r *op.Run, in *input) (op.Observation, error) {
		vol, found, err := e.registered(ctx, in)
		if err != nil || !found || vol.Status == api.VolumeCreating {
			return op.NotDone, err
		}
		return op.Done, r.SetOutput(vol)
	}
	return step(stepNamePublish, do, nil, observe)
}

// stepClaim keeps everybody off a volume that is to be deleted: from here on
// nobody attaches or migrates it.
func (e *env) stepClaim() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		if in.from() == api.VolumeDeleting {
			return nil // by a deletion that did not end
		}
		t := api.VolumeTransition{From: in.from(), To: api.VolumeDeleting}
		_, err := e.Registry.TransitionVolume(ctx, r.OpID()+".claim", in.Volume.ID, t)
		return request.Registry(err)
	}
	// A volume that was not whole is not available by giving it back: it goes on
	// being one that is deleted, by force.
	undo := func(ctx context.Context, r *op.Run, in *input) error {
		vol, found, err := e.registered(ctx, in)
		if err != nil || !found || vol.Status != api.VolumeDeleting || in.from() != api.VolumeAvailable {
			return err
		}
		t := api.VolumeTransition{From: api.VolumeDeleting, To: api.VolumeAvailable}
		_, err = e.Registry.TransitionVolume(ctx, r.OpID()+".unclaim", in.Volume.ID, t)
		return request.Registry(err)
	}
	observe := func(ctx context.Context, _ *op.Run, in *input) (op.Observation, error) {
		vol, found, err := e.registered(ctx, in)
		return op.DoneIf(found && vol.Status == api.VolumeDeleting), err
	}
	return step("claim", do, undo, observe)
}

// stepForget ends a deletion: name and place are free again.
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

// registered reads the volume from the registry. Its errors are typed for the
// runner.
func (e *env) registered(ctx context.Context, in *input) (vol api.Volume, found bool, err error) {
	vol, err = e.Registry.Volume(ctx, in.Volume.ID)
	if api.CodeOf(err) == api.CodeNotFound {
		return vol, false, nil
	}
	return vol, err == nil, request.Registry(err)
}

// forget removes the volume from the registry; absent is no error.
func (e *env) forget(ctx context.Context, opID string, in *input) error {
	err := e.Registry.DeleteVolume(ctx, opID, in.Volume.ID)
	if api.CodeOf(err) == api.CodeNotFound {
		return nil
	}
	return request.Registry(err)
}
