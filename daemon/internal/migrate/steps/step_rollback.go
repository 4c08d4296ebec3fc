// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// stepAdmitRollback checks again whether src still belongs to the instance. If so, that holds until
// this host is fenced again.
func (e *Env) stepAdmitRollback() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *Spec) error {
		epoch, _, _ := e.fence.behind(s)
		kept, err := e.keptSrc(ctx, s, api.MigrationCancelled)
		if err != nil {
			return err
		}
		if !kept {
			return e.abandoned(ctx, s, api.MigrationCancelled, false)
		}
		e.fence.confirm(s, epoch)
		return e.copier.Forget(ctx, s.CopyKey())
	}
	return step("admit", do, nil, nil)
}
