// SPDX-License-Identifier: Apache-2.0

package place

import (
	"cmp"
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// StepRegister takes the migration lock at the registry and reserves dst: no other request can
// attach, delete or migrate the volume, or use dst.
func (e *Env) StepRegister() op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		if err := e.notLeaving(ctx, s); err != nil {
			return err
		}
		_, err := e.registry.RegisterMigration(ctx, r.OpID()+".register", api.MigrationRegister{
			ID: s.MigrationID, VolumeID: s.VolumeID,
			SrcAttachmentID: s.SrcAttachmentID, DstAttachmentID: s.DstAttachmentID,
			Host: s.Host, Epoch: s.Epoch, Generation: s.Generation,
			Dst: seal.DstToReserve(s), Method: s.Method, ToType: s.ToType, OpID: r.OpID(),
		})
		if api.CodeOf(err) == api.CodeStaleEpoch {
			// The earlier checks were made in an older epoch; the caller may repeat the call.
			e.fence.Raise(move.EpochIn(err))
			return err
		}
		return e.move.RegistryError(err)
	}
	undo := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		switch _, err := e.registry.Migration(ctx, s.MigrationID); {
		case api.CodeOf(err) == api.CodeNotFound:
			return nil
		case err != nil:
			return e.move.RegistryError(err)
		}
		if err := e.look.MayRelease(ctx, s); err != nil {
			return err
		}
		return e.transition(ctx, r, s, api.MigrationError)
	}
	observe := func(ctx context.Context, r *op.Run, s *move.Spec) (op.Observation, error) {
		row, err := e.registry.Migration(ctx, s.MigrationID)
		if api.CodeOf(err) == api.CodeNotFound {
			return op.NotDone, nil
		}
		if err != nil {
			return op.Unknown, e.move.RegistryError(err)
		}
		if row.State.Final() {
			return op.NotDone, nil
		}
		return op.Done, r.SetOutput(grantOutput{Granted: true})
	}
	return move.Step(RegisterStep, do, undo, observe)
}

// RegisterStep is the name of StepRegister.
const RegisterStep = "register"

// notLeaving refuses a volume that its guest may still release because of a detach, even if the
// detach op was abandoned: QEMU would lose the disk under its overlay or block job. It also refuses
// an overlay in a guest that may release another volume, if that would prevent a cancel.
func (e *Env) notLeaving(ctx context.Context, s *move.Spec) error {
	if e.unplugs == nil || !s.Attached() {
		return nil
	}
	err := e.unplugs.MayMove(ctx, s.VolumeID)
	if err == nil && s.Overlaid() {
		err = e.unplugs.MayOverlay(ctx, s.InstanceID, s.VolumeName)
	}
	if api.CodeOf(err) == api.CodeHypervisorUnavailable {
		return request.AwaitHypervisor(err)
	}
	return err
}

// grantOutput records that the registry has granted the lock: from then on a failure is the end of
// a migration, and no refusal of a request.
type grantOutput struct {
	Granted bool `json:"granted"`
}

var openStates = []api.MigrationState{
	api.MigrationStarting, api.MigrationStarted, api.MigrationCopying, api.MigrationCopied,
	api.MigrationCompleting, api.MigrationCancelling, api.MigrationNeedsOperator,
}

// StepPublish changes the registry's state of the migration from any open state. The state
// completed moves the attachment to dst and frees src; cancelled frees dst. The step waits for the
// registry without limit.
func (e *Env) StepPublish(name string, to api.MigrationState, undoTo api.MigrationState) op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		if to.Final() {
			if err := e.look.MayRelease(ctx, s); err != nil {
				return err
			}
		}
		err := e.transition(ctx, r, s, to)
		if err == nil && to == api.MigrationCompleted {
			e.seal.IdentifyMade(ctx, r.OpID()+".identify", s)
		}
		return err
	}
	var undo op.DoFunc[move.Spec]
	if undoTo != "" {
		undo = func(ctx context.Context, r *op.Run, s *move.Spec) error { return e.transition(ctx, r, s, undoTo) }
	}
	observe := func(ctx context.Context, _ *op.Run, s *move.Spec) (op.Observation, error) {
		row, err := e.registry.Migration(ctx, s.MigrationID)
		if api.CodeOf(err) == api.CodeNotFound {
			return op.NotDone, nil // do finds out what that means
		}
		if err != nil {
			return op.Unknown, e.move.RegistryError(err)
		}
		return op.DoneIf(row.State == to), nil
	}
	return move.Step(name, do, undo, observe)
}

func (e *Env) transition(ctx context.Context, r *op.Run, s *move.Spec, to api.MigrationState) error {
	var in move.Input
	if err := r.Input(&in); err != nil {
		return err
	}
	err := e.askThroughClaim(ctx, r.OpID(), s, to, in.Why)
	switch api.CodeOf(err) {
	case api.CodeNoMigration:
		return e.overAtRegistry(ctx, s, to, err)
	case api.CodeNotFound:
		return e.unknownAtRegistry(ctx, s, to, err)
	default:
		return e.move.RegistryError(err)
	}
}

// RecordEnd reports a migration's end to the registry, unless the registry has it already. opID is
// the op that ended the migration. why is its reason, or nil.
func (e *Env) RecordEnd(ctx context.Context, s *move.Spec, opID string, end api.MigrationState, why *api.Error) error {
	row, err := e.registry.Migration(ctx, s.MigrationID)
	if err != nil || row.State.Final() {
		return err
	}
	if err := e.askThroughClaim(ctx, opID, s, end, why); err != nil {
		return err
	}
	e.log.Warn("the registry had a move open that is over on this host, as after a restore from a backup, and has heard of its end",
		"migration", s.MigrationID, "volume", s.VolumeName, "end", end)
	if end == api.MigrationCompleted {
		e.seal.IdentifyMade(ctx, opID+".identify", s)
	}
	return nil
}

// askThroughClaim is askTransition. If a registry that was restored from an older backup refuses
// the transition to completed, it first repeats the transition to completing.
func (e *Env) askThroughClaim(ctx context.Context, opID string, s *move.Spec, to api.MigrationState, why *api.Error) error {
	err := e.askTransition(ctx, opID, s, to, why)
	if to == api.MigrationCompleted && api.CodeOf(err) == api.CodeStateForbidden {
		if err = e.askTransition(ctx, opID, s, api.MigrationCompleting, why); err == nil {
			err = e.askTransition(ctx, opID, s, to, why)
		}
	}
	return err
}

// askTransition calls the registry for a transition. The call's op id contains the op and the new
// state, so a repeated call gets the same answer, and an undo gets another answer.
//
// It uses the present epoch: a host that was fenced and has rejoined continues its own migrations.
// The registry refuses other hosts' migrations.
func (e *Env) askTransition(ctx context.Context, opID string, s *move.Spec, to api.MigrationState, why *api.Error) error {
	host, err := e.host(ctx)
	if err != nil {
		return err
	}
	t := api.MigrationTransition{From: openStates, To: to, Host: s.Host, Epoch: max(s.Epoch, host.Epoch), OpID: opID}
	// The op was undone before its commit point, or the disk is back on src.
	t.NotSwitched = to == api.MigrationCancelled || to == api.MigrationError
	if to == api.MigrationCancelled {
		t.Error = why
	}
	id := opID + "." + string(to)
	if t.Epoch != s.Epoch {
		id = fmt.Sprintf("%s.%d", id, t.Epoch) // another body is another request
	}
	_, err = e.registry.TransitionMigration(ctx, id, s.MigrationID, t)
	return err
}

// unknownAtRegistry returns the error for a migration that the registry does not know because its
// database was restored from a backup. The op waits until the operator accepts the restore, which
// gives this host a new epoch: until then the operator may restore another backup.
func (e *Env) unknownAtRegistry(ctx context.Context, s *move.Spec, to api.MigrationState, refused error) error {
	if !e.move.Behind(s) {
		return op.WaitFor(request.WaitRegistry, refused)
	}
	return e.move.Forgotten(ctx, s, to == api.MigrationCompleted)
}

func (e *Env) overAtRegistry(ctx context.Context, s *move.Spec, to api.MigrationState, refused error) error {
	row, err := e.registry.Migration(ctx, s.MigrationID)
	if err != nil || !row.State.Final() {
		return e.move.RegistryError(cmp.Or(err, refused))
	}
	return e.move.Abandoned(ctx, s, row.State, to == api.MigrationCompleted)
}
