// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// StepSettle makes sure, with the guest running again, that neither the definition nor the guest's
// process has the chain from before the switch.
func (e *Env) StepSettle(to move.Direction) op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		e.progress.Clear(s.MigrationID)
		if err := e.blockjob.LiftThrottle(ctx, r, s); err != nil {
			return err
		}
		left, err := e.blockjob.EndWriteLimits(ctx, s)
		if err != nil {
			return err
		}
		if left != "" {
			if err := r.SetOutput(move.RemarkOutput{Remark: left}); err != nil {
				return err
			}
		}
		disk, err := e.look.ConfirmDisk(ctx, s)
		if err != nil {
			return err
		}
		// Any other chain may have newer writes.
		if (disk.Config != to.End && disk.Config != s.Before()) || (disk.Active && disk.Live != to.End) {
			return op.UnknownOutcome(look.ChainChanged(s, disk))
		}
		if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, to.Chain(s)); err != nil {
			return e.move.HVError(err)
		}
		if err := e.seal.EndHasItsName(ctx, s, to); err != nil {
			return err
		}
		if err := e.blockjob.EndIsStored(ctx, r, s, to, disk); err != nil {
			return err
		}
		if to.End == move.OnDst {
			if disk.Active {
				if err := e.assertClosed(ctx, s, s.Src.Path); err != nil {
					return err
				}
			}
			e.place.GiveBackSrcRights(ctx, s) // no definition names src any more
		}
		if !disk.Active || s.Overlay == "" {
			return nil
		}
		return e.assertClosed(ctx, s, s.Overlay)
	}
	return move.Step(blockjob.SettleStep, do, nil, nil)
}

func (e *Env) assertClosed(ctx context.Context, s *move.Spec, path string) error {
	files, err := e.openFiles(ctx, s, path)
	if err != nil {
		return err
	}
	if len(files) > 0 {
		return op.Retry(frozenRetry, api.Errorf(api.CodeInstanceBusy, "instance %s still has %s open", s.InstanceName, path))
	}
	return nil
}
