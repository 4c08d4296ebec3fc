// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// stepKeepOff keeps the instance of an offline migration, if any, off until the migration ends: src
// is frozen because no program may open it.
func (e *Env) stepKeepOff() op.Step {
	hold := func(ctx context.Context, s *Spec) error {
		if !s.Attached() {
			return nil
		}
		reason := fmt.Sprintf("volume %s of this instance is being moved with the instance stopped; "+
			"wait, or cancel it: %s", s.VolumeName, s.cancelCommand())
		if err := e.guards.Set(s.InstanceID, s.Owner(), reason); err != nil {
			return err
		}
		disk, err := e.readDisk(ctx, s)
		if err != nil {
			return err
		}
		if disk.active {
			return api.Errorf(api.CodeStateForbidden, "cannot move volume %s: instance %s was started meanwhile; stop it and try again",
				s.VolumeName, s.InstanceName)
		}
		if disk.config != OnSrc {
			return chainChanged(s, disk)
		}
		return atRest(s, disk)
	}
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		if err := hold(ctx, s); err != nil {
			return err
		}
		out, err := e.seal(ctx, r, s, keepOffStep)
		if err != nil {
			return lostByGuest(s, err)
		}
		return r.SetOutput(out)
	}
	undo := func(ctx context.Context, r *op.Run, s *Spec) error {
		var note snapshotNote
		if noted, err := r.Noted(keepOffStep, &note); err != nil {
			return err
		} else if noted {
			if _, err := e.removeSnapshot(ctx, s, nil); err != nil {
				return err
			}
		}
		return e.endKeepOff(s)
	}
	return provided(step(keepOffStep, do, undo, nil), e.srcUnchanged)
}

// keepOffStep is its name in journals, which is older than the holds of step_hold.go.
const keepOffStep = "hold"

func (e *Env) stepEndKeepOff() op.Step {
	do := func(_ context.Context, _ *op.Run, s *Spec) error { return e.endKeepOff(s) }
	return step("let_go", do, nil, nil)
}

func (e *Env) endKeepOff(s *Spec) error {
	if !s.Attached() {
		return nil
	}
	return e.guards.Clear(s.InstanceID, s.Owner())
}

// stepNameDestination changes the definition of the instance that is kept off to dst. The copy is
// verified and the instance has not run since, so both names read the same and the step can be
// undone.
func (e *Env) stepNameDestination() op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		if !s.Attached() {
			return nil
		}
		disk, err := e.readDisk(ctx, s)
		if err != nil {
			return err
		}
		if disk.active || (disk.config != OnSrc && disk.config != OnDst) {
			return chainChanged(s, disk)
		}
		// Where the guard hook does not work, the instance may have been started since the
		// comparison.
		if _, err := e.sealedOrSame(ctx, s, r.OpID()); err != nil {
			return err
		}
		return e.hvError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.DstChain()))
	}
	undo := func(ctx context.Context, r *op.Run, s *Spec) error {
		if !s.Attached() {
			return nil
		}
		disk, err := e.confirmDisk(ctx, s)
		if err != nil || disk.config != OnDst {
			return err // the definition is unchanged, or another program's
		}
		return e.unnameEnd(ctx, r, s) // under the guard of stepKeepOff
	}
	observe := func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		if !s.Attached() {
			return op.Done, nil
		}
		disk, err := e.readDisk(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		return op.DoneIf(disk.config == OnDst), nil
	}
	return provided(step("name_dst", do, undo, observe), e.dstUnchanged)
}
