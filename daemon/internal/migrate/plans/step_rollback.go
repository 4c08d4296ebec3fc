// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// stepAdmitRollback checks whether src still belongs to the instance. The result holds until this
// host is fenced again.
func (e *Env) stepAdmitRollback() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *move.Spec) error {
		epoch, _, _ := e.fence.Behind(s)
		kept, err := e.Move.KeptSrc(ctx, s, api.MigrationCancelled)
		if err != nil {
			return err
		}
		if !kept {
			return e.Move.Abandoned(ctx, s, api.MigrationCancelled, false)
		}
		e.fence.Confirm(s, epoch)
		return e.copier.Forget(ctx, s.CopyKey())
	}
	return move.Step(admitStep, do, nil, nil)
}
