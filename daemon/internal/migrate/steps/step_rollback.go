// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// rollbackPlans fold the overlay of a migration that the registry has ended back
// into src, which is still the instance's. Dst is not touched: it may be another
// volume's by now.
func (e *Env) rollbackPlans() []op.Plan {
	return []op.Plan{
		{Kind: KindRollbackLive, Commit: "pivot", Steps: slices.Concat(
			[]op.Step{e.stepAdmitRollback()},
			e.abortSteps(e.stepEndMirror()),
			e.backLiveSteps(),
		)},
		{Kind: KindRollbackCold, Commit: "fold", Steps: slices.Concat(
			[]op.Step{e.stepAdmitRollback()},
			e.backColdSteps(),
		)},
	}
}

// stepAdmitRollback looks once more whether src is still the instance's. If it is,
// that stands until this host is fenced again.
func (e *Env) stepAdmitRollback() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *Spec) error {
		epoch, _, _ := e.fence.behind(s)
		kept, err := e.keptSrc(ctx, s, api.MigrationCancelled)
		if err != nil {
			return err
		}
		if !kept {
			return e.abandoned(ctx, s, api.MigrationCancelled)
		}
		e.fence.confirm(s, epoch)
		return e.copier.Forget(ctx, s.CopyKey())
	}
	return step("admit", do, nil, nil)
}
