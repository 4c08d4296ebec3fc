// SPDX-License-Identifier: Apache-2.0

package led

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// A purpose is the action of a step, and a test of the registry's migration and volume: whether
// the registry still wants the action.
type purpose struct {
	verb string
	is   func(s *move.Spec, row *api.Migration, vol *api.Volume) bool
}

// The purposes of steps.
var (
	// ToCopy is the copy of src.
	ToCopy = purpose{"copy", func(s *move.Spec, row *api.Migration, vol *api.Volume) bool {
		return openForCopy(row.State) && vol.Location.Path == s.Src.Path
	}}
	// ToMake is the making of dst.
	ToMake = purpose{"make a destination for", func(s *move.Spec, row *api.Migration, vol *api.Volume) bool {
		return row.State == api.MigrationStarting && vol.Location.Path == s.Src.Path
	}}
	// ToCancel is the removal of the copy.
	ToCancel = purpose{"remove the copy of", func(s *move.Spec, row *api.Migration, vol *api.Volume) bool {
		// While the volume is at src, only a cancel needs an operator.
		cancelled := row.State == api.MigrationCancelling || row.State == api.MigrationNeedsOperator
		return cancelled && vol.Location.Path != s.Dst.Path
	}}
	// ToDelete is for the deletion of src: after the migration's end src may become another
	// volume's.
	ToDelete = purpose{"delete the source of", func(s *move.Spec, row *api.Migration, vol *api.Volume) bool {
		return row.State == api.MigrationCompleting && vol.Location.Path == s.Dst.Path
	}}
)

func openForCopy(state api.MigrationState) bool {
	switch state {
	case api.MigrationStarting, api.MigrationStarted, api.MigrationCopying, api.MigrationCopied:
		return true
	case api.MigrationCompleting, api.MigrationCompleted, api.MigrationCancelling, api.MigrationCancelled,
		api.MigrationError, api.MigrationNeedsOperator, api.MigrationOrphaned:
	}
	return false
}

// Wanted makes a step ask the registry first, and refuse if the registry no longer wants it: the
// registry's request may be late.
func (e *Env) Wanted(st op.Step, p purpose) op.Step {
	do := st.Do
	st.Do = func(ctx context.Context, r *op.Run) error {
		s, err := move.SpecOf(r)
		if err != nil {
			return err
		}
		row, err := e.registry.Migration(ctx, s.MigrationID)
		if err != nil {
			return e.move.RegistryError(err)
		}
		vol, err := e.registry.Volume(ctx, s.VolumeID)
		if err != nil {
			return e.move.RegistryError(err)
		}
		if row.Method != s.Method || row.VolumeID != s.VolumeID || !p.is(s, &row, &vol) {
			return api.Errorf(api.CodeStateForbidden, "cannot %s volume %s for migration %s: by the registry it is %s, and the volume is at %s",
				p.verb, vol.Name, s.MigrationID, row.State, vol.Location.Path).With("state", row.State)
		}
		return do(ctx, r)
	}
	return st
}

// OnlyIf makes a step count as done, without effect, unless the predicate is true.
func OnlyIf(yes predicate, st op.Step) op.Step {
	do, observe := st.Do, st.Observe
	st.Do = func(ctx context.Context, r *op.Run) error {
		if is, err := evaluate(ctx, r, yes); err != nil || !is {
			return err
		}
		return do(ctx, r)
	}
	st.Observe = func(ctx context.Context, r *op.Run) (op.Observation, error) {
		is, err := evaluate(ctx, r, yes)
		if err != nil {
			return op.Unknown, err
		}
		if !is {
			return op.Done, nil
		}
		return observe(ctx, r)
	}
	return st
}

func evaluate(ctx context.Context, r *op.Run, question predicate) (bool, error) {
	s, err := move.SpecOf(r)
	if err != nil {
		return false, err
	}
	return question(ctx, s)
}

// These steps check before and after the copy that no process has src open, and after it that src
// was not written meanwhile.
const (
	ClosedStep      = "closed"
	StillClosedStep = "still_closed"
)

// StepClosed makes sure that no process of this host has src open. It drops this host's cache of
// src, since other hosts may have written to src.
func (e *Env) StepClosed(name string) op.Step {
	do := func(ctx context.Context, _ *op.Run, s *move.Spec) error {
		if err := e.closed(ctx, s); err != nil {
			return err
		}
		return e.images.Connect(ctx, s.Src.Path)
	}
	return move.Step(name, do, nil, nil)
}

// UnwrittenSinceClosed makes a step after the copy refuse a src that was written since ClosedStep.
// Only this check detects a domain that was started and is off again.
func (e *Env) UnwrittenSinceClosed(st op.Step) op.Step {
	return seal.Followed(st, func(ctx context.Context, r *op.Run, s *move.Spec) error {
		var was seal.LeftSrcNote
		if _, err := r.Noted(ClosedStep, &was); err != nil || was.Left == nil {
			return err
		}
		change, _, err := e.seal.ChangeSinceLeft(ctx, s, was.Left)
		if err != nil {
			return ctx.Err() // SealLeft has logged the failed stamp
		}
		return inUseBy(s, change == image.Changed, "it was written while it was copied, by a guest that was started on it perhaps")
	})
}

// closed refuses a src that this host has open: in a running domain, as libvirt or the kernel
// shows, or as a mount or device.
func (e *Env) closed(ctx context.Context, s *move.Spec) error {
	doms, err := e.domains.Domains(ctx)
	if err != nil {
		return e.move.HVError(err)
	}
	for i := range doms {
		if open, err := location.Opens(ctx, e.processes, &doms[i], s.Src.Path); err != nil || open {
			return errors.Join(e.move.HVError(err), inUseBy(s, open, "instance "+doms[i].Name))
		}
	}
	user, err := e.images.InUse(ctx, s.Src.Path, nil)
	if err != nil {
		return err
	}
	return inUseBy(s, user != "", user)
}

func inUseBy(s *move.Spec, yes bool, who string) error {
	if !yes {
		return nil
	}
	return api.Errorf(api.CodeVolumeInUse, "cannot move volume %s %s: %s is still in use: %s", s.VolumeName, s.Manner(), s.Src.Path, who)
}

// HasCopy reports whether this host has made dst and, unless other hosts copy too, filled it.
func (e *Env) HasCopy(ctx context.Context, s *move.Spec) (bool, error) {
	if s.Method == move.MethodLive {
		return e.history.Made(ctx, s)
	}
	return e.history.Copied(ctx, s)
}

// ForgettingUndo makes the undo of a copy remove the copy's cursor before dst is removed.
// Otherwise the next copy would continue in the middle of an empty dst.
func (e *Env) ForgettingUndo(st op.Step) op.Step {
	st.Undo = e.StepForget().Do
	return st
}

// StepForget removes the cursor of the copy.
func (e *Env) StepForget() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *move.Spec) error { return e.copier.Forget(ctx, s.CopyKey()) }
	return move.Step("forget", do, nil, nil)
}

type predicate func(context.Context, *move.Spec) (bool, error)
