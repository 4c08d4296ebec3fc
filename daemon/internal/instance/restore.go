// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/atomicfile"
	"github.com/volferry/volferry/internal/op"
)

// The steps of a restore that are looked at elsewhere.
const (
	stepNameSavedState = "rested"
	stepNameWake       = "wake"
	// Once the save image is removed there is no way back.
	stepNameRemoveSaveImage = "forget_memory"
	stepNameResume          = "resume"
)

// WakingSteps are the steps of a restore at which its guest may be paused: it is
// restored paused, and runs on when its save image is removed.
func WakingSteps() []string { return []string{stepNameWake, stepNameRemoveSaveImage, stepNameResume} }

// BeginRestore restores an instance that was saved for a migration, with the volume at
// the location. The instance is paused then, guarded and with its save image, until
// BeginResume: other guests of the volume may not be restored yet. For an instance that
// was not saved it only checks that. An instance that cannot be restored stays saved and
// guarded (needs_operator), and the restore may be asked for again. With DiscardMemory
// the instance is off afterwards.
func (m *Manager) BeginRestore(ctx context.Context, opID, instanceRef string, in api.InstanceRestore) (api.Instance, error) {
	kind := kindRestorePaused
	if in.DiscardMemory {
		kind = kindDiscard
	}
	return m.submit(ctx, request.Request{
		OpID: opID, Kind: kind, Asked: requestBody{instanceRef, in},
		Decide: func(ctx context.Context) (request.Input, error) {
			input, err := m.env.pauseInput(ctx, instanceRef, in.MigrationID, in.VolumeID)
			if err != nil {
				return nil, err
			}
			if !in.Paused {
				return nil, forbidden("restore", input.InstanceName, "it would have to run on before the other guests of volume %s are restored; is the registry older than this host's volferryd?", input.VolumeName)
			}
			input.Location = in.Location
			return input, nil
		},
	})
}

// stepSavedState reads what the instance was, once no other op works on it.
func (m *Manager) stepSavedState() op.Step {
	return step(stepNameSavedState, func(ctx context.Context, r *op.Run, in *pauseInput) error {
		was, err := m.savedState(ctx, in)
		if err != nil {
			return err
		}
		return r.SetOutput(was)
	}, nil, nil)
}

// stepConnect checks the image that the instance is to have, and makes sure that no
// stale cache of it is read: another host may have written it.
func (e *stepEnv) stepConnect() op.Step {
	return step("connect", func(ctx context.Context, _ *op.Run, in *pauseInput) error {
		if err := e.checkPlace(ctx, in); err != nil {
			return err
		}
		info, err := e.Images.Inspect(ctx, in.Location.Path, in.Location.Format)
		if err != nil {
			return in.needsOperator(err)
		}
		if info.SizeBytes != in.Location.SizeBytes {
			return in.needsOperator(api.Errorf(api.CodeSizeMismatch, "%s is %d bytes and has to be %d", in.Location.Path, info.SizeBytes, in.Location.SizeBytes))
		}
		return e.Images.Connect(ctx, in.Location.Path)
	}, nil, nil)
}

// checkPlace refuses a location whose path is not in its pool on this host: the path was
// chosen by the host that made the copy.
func (e *stepEnv) checkPlace(ctx context.Context, in *pauseInput) error {
	err := location.CheckPool(ctx, e.HV, in.Location, "cannot wake instance "+in.InstanceName)
	var refused *api.Error
	if errors.As(err, &refused) {
		return in.needsOperator(refused)
	}
	return request.HV(err)
}

// image is the volume's image as the hypervisor names it.
func (e *stepEnv) image(ctx context.Context, in *pauseInput) (hv.Image, error) {
	info, err := e.Images.Inspect(ctx, in.Location.Path, in.Location.Format)
	return location.Image(in.Location, info.Block), err
}

// stepName makes the persistent definition name the location. It comes before the guard
// is cleared, so that a start by anybody in between finds the right volume.
func (e *stepEnv) stepName() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *pauseInput) error {
		img, err := e.image(ctx, in)
		if err != nil {
			return in.needsOperator(err)
		}
		err = request.HV(e.HV.SetConfigChain(ctx, in.InstanceID, in.Device, []hv.Image{img}))
		if errors.Is(err, hv.ErrNotFound) {
			return in.needsOperator(err)
		}
		return err
	}
	observe := func(ctx context.Context, _ *op.Run, in *pauseInput) (op.Observation, error) {
		dom, err := e.domain(ctx, in.InstanceID)
		if err != nil || dom == nil {
			return op.NotDone, err
		}
		return op.DoneIf(uses(dom.ConfigDisk(in.Device), in.Location.Path)), nil
	}
	return step("name", do, nil, observe)
}

// woken is the output of stepWake.
type woken struct {
	// Remark tells the caller in what the instance is not as it was.
	Remark string `json:"remark,omitempty"`
}

// stepWake restores the guest from its save image, paused: as long as the image is there
// the guest has not run since it was saved, so the step may be repeated whatever dies.
// Guard and image stay as they were, whether the step fails or not.
func (e *stepEnv) stepWake() op.Step {
	do := func(ctx context.Context, r *op.Run, in *pauseInput) error {
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
	observe := func(ctx context.Context, r *op.Run, in *pauseInput) (op.Observation, error) {
		was, err := savedStateOf(r)
		if err != nil {
			return op.Unknown, err
		}
		dom, err := e.domain(ctx, in.InstanceID)
		if err != nil || dom == nil || dom.State == hv.StateOther {
			return op.NotDone, err
		}
		there, err := saveImageExists(in)
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
	return step(stepNameWake, do, nil, observe)
}

// savedStateOf is what the instance was before it was suspended or saved.
func savedStateOf(r *op.Run) (savedState, error) {
	var was savedState
	_, err := r.Output(stepNameSavedState, &was)
	return was, err
}

// wake restores an instance from its save image, paused, with the disk that its
// persistent definition has, and says what could not be as it was. It may be repeated.
// The guard stays: it is cleared with the removal of the save image.
func (e *stepEnv) wake(ctx context.Context, in *pauseInput, was savedState) (remark string, err error) {
	dom, err := e.domain(ctx, in.InstanceID)
	switch {
	case err != nil:
		return "", err
	case dom == nil:
		return "", in.needsOperator(errors.New("it is not defined on this host any more"))
	case dom.State == hv.StateOther:
		return "", op.WaitFor(waitSave, api.Errorf(api.CodeInstanceBusy, "instance %s is neither running, paused nor stopped", in.InstanceName))
	case dom.State.Active():
		return e.awake(in, dom)
	}
	there, err := saveImageExists(in)
	switch {
	case err != nil:
		return "", in.needsOperator(err)
	case there && !was.hadMemory():
		return "", in.needsOperator(errors.New("the journal does not know that it was saved, and what it was then"))
	case !was.hadMemory():
		return "", nil
	case !there:
		remark = in.saveImageGone(was)
		e.log.Warn("an instance is not as it was", "instance", in.InstanceName, "why", remark)
		return remark, nil
	}
	if !uses(dom.ConfigDisk(in.Device), in.Location.Path) {
		return "", in.needsOperator(in.chainChanged("persistent definition"))
	}
	if err := e.sameDisks(ctx, in, dom); err != nil {
		return "", err
	}
	return "", e.wakeFromFile(ctx, in, dom)
}

// saveImageGone is the remark about an instance whose save image is missing.
func (in *pauseInput) saveImageGone(was savedState) string {
	return fmt.Sprintf("instance %s was %s and is stopped now: its saved memory %s is not there", in.InstanceName, was.State, in.Memory)
}

// sameDisks makes sure that the other disks in the save image are the disks of the
// persistent definition: a definition that was edited meanwhile names other images than
// the guest would be restored with.
func (e *stepEnv) sameDisks(ctx context.Context, in *pauseInput, dom *hv.Domain) error {
	saved, err := e.HV.SavedDisks(ctx, in.InstanceID, in.Memory)
	switch {
	case errors.Is(err, hv.ErrUnavailable):
		return request.HV(err)
	case err != nil:
		return in.needsOperator(err)
	}
	if what := otherDisks(saved, dom.Config, in.Device); what != "" {
		return in.needsOperator(api.Errorf(api.CodeChainChanged, "its disk %s in its definition, which was changed while it was saved; it would be restored with the first", what))
	}
	return nil
}

// wakeFromFile restores an instance that is off. Its guard is set all the while, so
// that neither a start by somebody else nor a reboot of the host boots it without its
// RAM; a start token lets the restore through, and nothing else.
func (e *stepEnv) wakeFromFile(ctx context.Context, in *pauseInput, dom *hv.Domain) error {
	if err := e.Migrations.MayStart(ctx, in.InstanceID); err != nil { // of its other volumes
		return in.needsOperator(err)
	}
	if err := e.permit(ctx, in, api.PermitRestore); err != nil {
		return err
	}
	if err := e.Guards.Set(in.InstanceID, in.owner(), in.reason()); err != nil {
		return err
	}
	token, err := e.Guards.IssueStartToken(in.InstanceID, in.owner())
	if err != nil {
		return err
	}
	err = e.HV.RestoreMemory(ctx, in.InstanceID, in.Memory, hv.RestoreOptions{
		Chains: map[string][]hv.Image{in.Device: dom.ConfigDisk(in.Device).Chain}, Paused: true, StartToken: token,
	})
	if err := e.Guards.RevokeStartToken(in.InstanceID); err != nil {
		return err
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, hv.ErrUnavailable), errors.Is(err, hv.ErrBusy):
		return request.HV(err)
	case errors.Is(err, hv.ErrActive):
		return op.Retry(request.BusyDelay, err) // somebody was first; looked at next
	case errors.Is(err, hv.ErrGuarded):
		if old := e.Guards.HookKnowsStartTokens(); old != nil {
			err = fmt.Errorf("%w; %w", err, old)
		}
	}
	return in.needsOperator(err)
}

// awake checks an instance that has a process again. If it runs while its save image is
// there, somebody else has started or resumed it: the image is outdated then, and kept
// under a name that nothing restores.
func (e *stepEnv) awake(in *pauseInput, dom *hv.Domain) (remark string, err error) {
	if !uses(dom.LiveDisk(in.Device), in.Location.Path) {
		return "", in.needsOperator(in.chainChanged("running domain"))
	}
	there, err := saveImageExists(in)
	if err != nil {
		return "", err
	}
	if there && dom.State == hv.StateRunning {
		aside := in.Memory + ".unused"
		if err := errors.Join(os.Rename(in.Memory, aside), atomicfile.SyncDir(e.saveDir)); err != nil {
			return "", err
		}
		remark = fmt.Sprintf("instance %s was started by somebody else; its saved memory is in %s and must not be restored, since the disks have gone on", in.InstanceName, aside)
		e.log.Warn("an instance is not as it was", "instance", in.InstanceName, "why", remark)
	}
	return remark, e.Guards.RevokeStartToken(in.InstanceID)
}

// needsOperator is the error for an instance that cannot be restored: it stays saved and
// guarded, and a person is told where everything is and both ways on.
func (in *pauseInput) needsOperator(err error) error {
	return api.Errorf(api.CodeNeedsOperator,
		"cannot restore instance %s: %v; its memory is in %s, its volume %s at %s; once that is right, ask again: `volferryctl migration complete %s`, or cancel; to give its memory up, remove the file first: the instance is then restored stopped",
		in.InstanceName, err, in.Memory, in.VolumeName, in.Location.Path, in.MigrationID).With("memory", in.Memory)
}
