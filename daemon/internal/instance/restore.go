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

// The steps of a restore that others look at.
const (
	stepNameRested = "rested"
	stepNameWake   = "wake"
	// Once the file is removed there is no way back.
	stepNameForgetMemory = "forget_memory"
	stepNameGoOn         = "resume"
)

// WakingSteps are the steps of a restore at which its guest may stand still: it is
// restored paused, and goes on when its RAM file is gone.
func WakingSteps() []string { return []string{stepNameWake, stepNameForgetMemory, stepNameGoOn} }

// BeginRestore restores an instance that was saved for a migration, with the volume at
// the location. It stands still then, guarded and with the file of its RAM, until
// BeginResume: its siblings may not be restored yet. For one that was not saved it only
// looks that this is so. One that cannot be restored stays saved and guarded
// (needs_operator), and may be asked for again. Where its memory is to be discarded it
// is off afterwards.
func (g *Manager) BeginRestore(ctx context.Context, opID, instanceRef string, in api.InstanceRestore) (api.Instance, error) {
	kind := kindRestorePaused
	if in.DiscardMemory {
		kind = kindDiscard
	}
	return g.take(ctx, request.Request{
		OpID: opID, Kind: kind, Asked: asked{instanceRef, in},
		Decide: func(ctx context.Context) (request.Input, error) {
			input, err := g.machine.pauseInput(ctx, instanceRef, in.MigrationID, in.VolumeID)
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

// stepRested finds out what the instance was, once no other op is at it.
func (g *Manager) stepRested() op.Step {
	return step(stepNameRested, func(ctx context.Context, r *op.Run, in *pauseInput) error {
		was, err := g.rested(ctx, in)
		if err != nil {
			return err
		}
		return r.SetOutput(was)
	}, nil, nil)
}

// stepConnect looks at the image that the instance is to have, and makes sure that
// nothing old is read of it: another host may have written it.
func (m *machine) stepConnect() op.Step {
	return step("connect", func(ctx context.Context, _ *op.Run, in *pauseInput) error {
		if err := m.checkPlace(ctx, in); err != nil {
			return err
		}
		info, err := m.Images.Inspect(ctx, in.Location.Path, in.Location.Format)
		if err != nil {
			return in.stuck(err)
		}
		if info.SizeBytes != in.Location.SizeBytes {
			return in.stuck(api.Errorf(api.CodeSizeMismatch, "%s is %d bytes and has to be %d", in.Location.Path, info.SizeBytes, in.Location.SizeBytes))
		}
		return m.Images.Connect(ctx, in.Location.Path)
	}, nil, nil)
}

// checkPlace refuses a location whose path is not that of its pool: it is the word of
// the host that made the copy.
func (m *machine) checkPlace(ctx context.Context, in *pauseInput) error {
	err := location.CheckPool(ctx, m.HV, in.Location, "cannot wake instance "+in.InstanceName)
	var refused *api.Error
	if errors.As(err, &refused) {
		return in.stuck(refused)
	}
	return request.HV(err)
}

// image is the volume's image as the hypervisor names it.
func (m *machine) image(ctx context.Context, in *pauseInput) (hv.Image, error) {
	info, err := m.Images.Inspect(ctx, in.Location.Path, in.Location.Format)
	return location.Image(in.Location, info.Block), err
}

// stepName makes the persistent definition name the location. It comes before the
// guard goes, so that a start by anybody in between finds the right volume.
func (m *machine) stepName() op.Step {
	do := func(ctx context.Context, _ *op.Run, in *pauseInput) error {
		img, err := m.image(ctx, in)
		if err != nil {
			return in.stuck(err)
		}
		err = request.HV(m.HV.SetConfigChain(ctx, in.InstanceID, in.Device, []hv.Image{img}))
		if errors.Is(err, hv.ErrNotFound) {
			return in.stuck(err)
		}
		return err
	}
	observe := func(ctx context.Context, _ *op.Run, in *pauseInput) (op.Observation, error) {
		dom, err := m.domain(ctx, in.InstanceID)
		if err != nil || dom == nil {
			return op.NotDone, err
		}
		return op.DoneIf(uses(dom.ConfigDisk(in.Device), in.Location.Path)), nil
	}
	return step("name", do, nil, observe)
}

// woken is the output of stepWake.
type woken struct {
	// Remark is what whoever asked should know: an instance that is not as it was.
	Remark string `json:"remark,omitempty"`
}

// stepWake restores the guest from its RAM, paused: as long as the file is there it has
// not run since it was saved, so that the step may be repeated whatever dies. Guard and
// file are as they were, whether it fails or not.
func (m *machine) stepWake() op.Step {
	do := func(ctx context.Context, r *op.Run, in *pauseInput) error {
		was, err := wasOf(r)
		if err != nil {
			return err
		}
		remark, err := m.wake(ctx, in, was)
		if err != nil {
			return err
		}
		return r.SetOutput(woken{remark})
	}
	observe := func(ctx context.Context, r *op.Run, in *pauseInput) (op.Observation, error) {
		was, err := wasOf(r)
		if err != nil {
			return op.Unknown, err
		}
		dom, err := m.domain(ctx, in.InstanceID)
		if err != nil || dom == nil || dom.State == hv.StateOther {
			return op.NotDone, err
		}
		there, err := memoryThere(in)
		switch {
		case err != nil:
			return op.NotDone, err
		case dom.State.Active():
			stale := there && dom.State == hv.StateRunning
			return op.DoneIf(!stale && uses(dom.LiveDisk(in.Device), in.Location.Path)), nil
		case there:
			return op.NotDone, nil
		case was.hadMemory():
			return op.Done, r.SetOutput(woken{in.memoryGone(was)})
		}
		return op.Done, nil
	}
	return step(stepNameWake, do, nil, observe)
}

// wasOf is what the instance was before it was put to rest.
func wasOf(r *op.Run) (rest, error) {
	var was rest
	_, err := r.Output(stepNameRested, &was)
	return was, err
}

// wake restores an instance from its RAM, paused, with the disk that its persistent
// definition has, and says what could not be as it was. It may be repeated. Its guard
// stays: whoever has the file removed clears it.
func (m *machine) wake(ctx context.Context, in *pauseInput, was rest) (remark string, err error) {
	dom, err := m.domain(ctx, in.InstanceID)
	switch {
	case err != nil:
		return "", err
	case dom == nil:
		return "", in.stuck(errors.New("it is not defined on this host any more"))
	case dom.State == hv.StateOther:
		return "", op.WaitFor(waitSave, api.Errorf(api.CodeInstanceBusy, "instance %s is neither running, paused nor stopped", in.InstanceName))
	case dom.State.Active():
		return m.awake(in, dom)
	}
	there, err := memoryThere(in)
	switch {
	case err != nil:
		return "", in.stuck(err)
	case there && !was.hadMemory():
		return "", in.stuck(errors.New("the journal does not know that it was saved, and what it was then"))
	case !was.hadMemory():
		return "", nil
	case !there:
		remark = in.memoryGone(was)
		m.log.Warn("an instance is not as it was", "instance", in.InstanceName, "why", remark)
		return remark, nil
	}
	if !uses(dom.ConfigDisk(in.Device), in.Location.Path) {
		return "", in.stuck(in.chainChanged("persistent definition"))
	}
	if err := m.sameDisks(ctx, in, dom); err != nil {
		return "", err
	}
	return "", m.wakeFromFile(ctx, in, dom)
}

// memoryGone is the remark about an instance that cannot be as it was.
func (in *pauseInput) memoryGone(was rest) string {
	return fmt.Sprintf("instance %s was %s and is stopped now: its saved memory %s is not there", in.InstanceName, was.State, in.Memory)
}

// sameDisks makes sure that the other disks in the RAM are those of the persistent
// definition. One that was edited meanwhile says that the place in the RAM is not
// this guest's any more.
func (m *machine) sameDisks(ctx context.Context, in *pauseInput, dom *hv.Domain) error {
	saved, err := m.HV.SavedDisks(ctx, in.InstanceID, in.Memory)
	switch {
	case errors.Is(err, hv.ErrUnavailable):
		return request.HV(err)
	case err != nil:
		return in.stuck(err)
	}
	if what := otherDisks(saved, dom.Config, in.Device); what != "" {
		return in.stuck(api.Errorf(api.CodeChainChanged, "its disk %s in its definition, which was changed while it was saved; it would be restored with the first", what))
	}
	return nil
}

// wakeFromFile restores an instance that is off. Its guard is set all the while, so
// that neither a start by somebody else nor a reboot of the host boots it without its
// RAM; a pass lets the restore through, and nothing else.
func (m *machine) wakeFromFile(ctx context.Context, in *pauseInput, dom *hv.Domain) error {
	if err := m.Migrations.MayStart(ctx, in.InstanceID); err != nil { // of its other volumes
		return in.stuck(err)
	}
	if err := m.permit(ctx, in, api.PermitRestore); err != nil {
		return err
	}
	if err := m.Guards.Set(in.InstanceID, in.owner(), in.reason()); err != nil {
		return err
	}
	pass, err := m.Guards.Pass(in.InstanceID, in.owner())
	if err != nil {
		return err
	}
	err = m.HV.RestoreMemory(ctx, in.InstanceID, in.Memory, hv.RestoreOptions{
		Chains: map[string][]hv.Image{in.Device: dom.ConfigDisk(in.Device).Chain}, Paused: true, Pass: pass,
	})
	if err := m.Guards.EndPass(in.InstanceID); err != nil {
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
		if old := m.Guards.HookKnowsPasses(); old != nil {
			err = fmt.Errorf("%w; %w", err, old)
		}
	}
	return in.stuck(err)
}

// awake looks at an instance that has a process again. One that runs while its file is
// there was started, or resumed, by somebody else: the file is of the past then, and
// kept under a name that nothing restores.
func (m *machine) awake(in *pauseInput, dom *hv.Domain) (remark string, err error) {
	if !uses(dom.LiveDisk(in.Device), in.Location.Path) {
		return "", in.stuck(in.chainChanged("running domain"))
	}
	there, err := memoryThere(in)
	if err != nil {
		return "", err
	}
	if there && dom.State == hv.StateRunning {
		aside := in.Memory + ".unused"
		if err := errors.Join(os.Rename(in.Memory, aside), atomicfile.SyncDir(m.saveDir)); err != nil {
			return "", err
		}
		remark = fmt.Sprintf("instance %s was started by somebody else; its saved memory is in %s and must not be restored, since the disks have gone on", in.InstanceName, aside)
		m.log.Warn("an instance is not as it was", "instance", in.InstanceName, "why", remark)
	}
	return remark, m.Guards.EndPass(in.InstanceID)
}

// stuck is the error for an instance that cannot be woken: it stays saved and guarded,
// and a person is told where everything is and both ways on.
func (in *pauseInput) stuck(err error) error {
	return api.Errorf(api.CodeNeedsOperator,
		"cannot restore instance %s: %v; its memory is in %s, its volume %s at %s; once that is right, ask again: `volferryctl migration complete %s`, or cancel; to give its memory up, remove the file first: the instance is then restored stopped",
		in.InstanceName, err, in.Memory, in.VolumeName, in.Location.Path, in.MigrationID).With("memory", in.Memory)
}
