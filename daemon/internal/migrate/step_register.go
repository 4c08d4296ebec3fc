// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// stepRegister takes the migration lock at the registry and reserves dst: from
// here on nobody else attaches, deletes or migrates the volume, or uses dst.
func (m *machine) stepRegister() op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		_, err := m.registry.RegisterMigration(ctx, r.OpID()+".register", api.MigrationRegister{
			ID: s.MigrationID, VolumeID: s.VolumeID,
			SrcAttachmentID: s.SrcAttachmentID, DstAttachmentID: s.DstAttachmentID,
			Host: s.Host, Epoch: s.Epoch, Generation: s.Generation,
			Dst: s.Dst, Method: s.Method, OpID: r.OpID(),
		})
		return registryError(err)
	}
	undo := func(ctx context.Context, r *op.Run, s *Spec) error {
		_, err := m.transition(ctx, r, s, api.MigrationError, openStates...)
		if api.CodeOf(err) == api.CodeNotFound {
			return nil
		}
		return registryError(err)
	}
	observe := func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		row, err := m.registry.Migration(ctx, s.MigrationID)
		if api.CodeOf(err) == api.CodeNotFound {
			return op.NotDone, nil
		}
		if err != nil {
			return op.Unknown, registryError(err)
		}
		return done(!row.State.Final()), nil
	}
	return step("register", do, undo, observe)
}

// openStates are all states of the registry's row in which it holds its locks.
var openStates = []api.MigrationState{
	api.MigrationStarting, api.MigrationStarted, api.MigrationCopying, api.MigrationCopied,
	api.MigrationCompleting, api.MigrationCancelling, api.MigrationNeedsOperator,
}

// stepPublish brings the registry's row to a state, from any of the given ones.
// Going to completed flips the attachment to dst and frees src; to cancelled,
// the reverse. It waits for a registry that is away, as long as it takes.
func (m *machine) stepPublish(name string, to api.MigrationState, undoTo api.MigrationState) op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		_, err := m.transition(ctx, r, s, to, openStates...)
		return registryError(err)
	}
	var undo stepFunc
	if undoTo != "" {
		undo = func(ctx context.Context, r *op.Run, s *Spec) error {
			_, err := m.transition(ctx, r, s, undoTo, openStates...)
			return registryError(err)
		}
	}
	observe := func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		row, err := m.registry.Migration(ctx, s.MigrationID)
		if err != nil {
			return op.Unknown, registryError(err)
		}
		return done(row.State == to), nil
	}
	return step(name, do, undo, observe)
}

// transition asks the registry for one change of state. The op id of the call
// names the op and both ends, so that a repeated call gets the same answer and
// an undo a new one.
func (m *machine) transition(ctx context.Context, r *op.Run, s *Spec, to api.MigrationState, from ...api.MigrationState) (api.Migration, error) {
	t := api.MigrationTransition{From: from, To: to, Host: s.Host, Epoch: s.Epoch, OpID: r.OpID()}
	return m.registry.TransitionMigration(ctx, r.OpID()+"."+string(to), s.MigrationID, t)
}
