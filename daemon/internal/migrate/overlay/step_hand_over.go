// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// StepHandOver ends a migration that the registry has ended, if the guest is off, or runs on a src
// that still belongs to the instance. If the guest runs on another image, only a person can decide
// whether it may run.
func (e *Env) StepHandOver() op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		disk, err := e.move.ReadDisk(ctx, s)
		if err != nil {
			return err
		}
		if !disk.Active {
			_, err := e.blockjob.EndWriteLimits(ctx, s)
			return err
		}
		if disk.Live == move.OnSrc && disk.Config == move.OnSrc {
			if kept, err := e.move.KeptSrc(ctx, s, api.MigrationCancelled); err != nil {
				return err
			} else if kept {
				left, err := e.blockjob.EndWriteLimits(ctx, s)
				if err != nil || left == "" {
					return err
				}
				return r.SetOutput(move.RemarkOutput{Remark: left})
			}
		}
		shutdown := shell.Line("virsh", "shutdown", "--", s.InstanceName)
		var in move.Input
		if err := r.Input(&in); err != nil {
			return err
		}
		why := *in.Why
		why.Message += fmt.Sprintf("; instance %s still runs on %s: shut it down (`%s`), and call cancel again, which ends the migration here", s.InstanceName, s.Place(disk.Live), shutdown)
		return op.UnknownOutcome(move.Cured(&why, shutdown))
	}
	return move.Step(HandOverStep, do, nil, nil)
}

// HandOverStep is the name of StepHandOver.
const HandOverStep = "hand_over"
