// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// The names of steps of a restore or a resume.
const (
	stepNameWake = "wake"
	// StepNameRemoveSaveImage is a step without an undo: the removed save image cannot be
	// restored.
	StepNameRemoveSaveImage = "remove_save_image"
	stepNameResume          = "resume"
)

// WakingSteps are the steps during which the guest may be paused.
func WakingSteps() []string { return []string{stepNameWake, StepNameRemoveSaveImage, stepNameResume} }

// StepSavedState outputs the instance's state before the save. It reads the state while no other
// op works on the instance.
func (e *Env) StepSavedState() op.Step {
	return subject.Step(subject.StepNameSavedState, func(ctx context.Context, r *op.Run, in *PauseInput) error {
		was, err := e.SavedState(ctx, in)
		if err != nil {
			return err
		}
		return r.SetOutput(was)
	}, nil, nil)
}

// StepConnect checks the image that the restored instance will use, and drops its cached pages:
// another host may have written it.
func (e *Env) StepConnect() op.Step {
	return subject.Step("connect", func(ctx context.Context, _ *op.Run, in *PauseInput) error {
		if err := e.checkPlace(ctx, in); err != nil {
			return err
		}
		info, err := e.images.Inspect(ctx, in.Location)
		if err != nil {
			return in.needsOperator(err)
		}
		if in.Location.VolumeBytes(info.SizeBytes) != in.Location.SizeBytes {
			return in.needsOperator(api.Errorf(api.CodeSizeMismatch, "%s is %d bytes and has to be %d", in.Location.Path, info.SizeBytes, in.Location.SizeBytes))
		}
		return e.images.Connect(ctx, in.Location.Path)
	}, nil, nil)
}

// Another host, which copied the volume, has chosen its location. So checkPlace refuses a location
// that no volume of this host may have. An image that the definition already names may be anywhere,
// unless its path is a link.
func (e *Env) checkPlace(ctx context.Context, in *PauseInput) error {
	dom, err := e.subject.Domain(ctx, in.InstanceID)
	if err != nil {
		return err
	}
	verdict := "cannot wake instance " + in.InstanceName
	if in.Location.Pool == "" && dom != nil && uses(dom.ConfigDisk(in.Device), in.Location.Path) {
		err = e.locations.CheckImages(in.Location)
	} else {
		err = e.locations.CheckLocation(ctx, in.Location, verdict)
	}
	return in.placeRefused(err)
}

func (e *Env) image(ctx context.Context, in *PauseInput) (hv.Image, error) {
	info, err := e.images.Inspect(ctx, in.Location)
	return location.Image(in.Location, info.Block), err
}

// StepName sets the location in the definition before the guard is cleared, so that any start
// finds the right volume.
func (e *Env) StepName() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *PauseInput) error {
		img, err := e.image(ctx, in)
		if err != nil {
			return in.needsOperator(err)
		}
		err = request.HV(e.definitions.SetConfigChain(ctx, in.InstanceID, in.Device, []hv.Image{img}))
		if errors.Is(err, hv.ErrNotFound) {
			return in.needsOperator(err)
		}
		return err
	}
	observe := func(ctx context.Context, _ *op.Run, in *PauseInput) (op.Observation, error) {
		dom, err := e.subject.Domain(ctx, in.InstanceID)
		if err != nil || dom == nil {
			return op.NotDone, err
		}
		return op.DoneIf(uses(dom.ConfigDisk(in.Device), in.Location.Path)), nil
	}
	return subject.Step("name", do, nil, observe)
}

// StepWake restores the guest from its save image, paused. The step may be repeated: while the
// save image exists, the guest has not run. Guard and save image stay.
func (e *Env) StepWake() op.Step {
	do := func(ctx context.Context, r *op.Run, in *PauseInput) error {
		was, err := savedStateOf(r)
		if err != nil {
			return err
		}
		remark, err := e.wake(ctx, in, was)
		if err != nil {
			return err
		}
		return r.SetOutput(woken{remark})
	}
	observe := func(ctx context.Context, r *op.Run, in *PauseInput) (op.Observation, error) {
		was, err := savedStateOf(r)
		if err != nil {
			return op.Unknown, err
		}
		dom, err := e.subject.Domain(ctx, in.InstanceID)
		if err != nil || dom == nil || dom.State == hv.StateOther {
			return op.NotDone, err
		}
		there, err := SaveImageExists(in)
		switch {
		case err != nil:
			return op.NotDone, err
		case dom.State.Active():
			stale := there && dom.State == hv.StateRunning
			return op.DoneIf(!stale && uses(dom.LiveDisk(in.Device), in.Location.Path)), nil
		case there:
			return op.NotDone, nil
		case was.hadMemory():
			return op.Done, r.SetOutput(woken{in.saveImageGone(was)})
		}
		return op.Done, nil
	}
	return subject.Step(stepNameWake, do, nil, observe)
}
