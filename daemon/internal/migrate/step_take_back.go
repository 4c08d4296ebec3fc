// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// takeBackPlans fold the overlay of a migration that the registry has ended back
// into src, which is still the instance's. Dst is not touched: it may be another
// volume's by now.
func (m *machine) takeBackPlans() []op.Plan {
	return []op.Plan{
		{Kind: kindTakeBackLive, Commit: "pivot", Steps: slices.Concat(
			[]op.Step{m.stepAdmitTakeBack()},
			m.abortSteps(m.stepEndMirror()),
			m.backLiveSteps(),
		)},
		{Kind: kindTakeBackCold, Commit: "fold", Steps: slices.Concat(
			[]op.Step{m.stepAdmitTakeBack()},
			m.backColdSteps(),
		)},
	}
}

// stepAdmitTakeBack looks once more whether src is still the instance's. If it is,
// that stands until this host is fenced again.
func (m *machine) stepAdmitTakeBack() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *Spec) error {
		epoch, _, _ := m.fence.behind(s)
		kept, err := m.keptSrc(ctx, s, api.MigrationCancelled)
		if err != nil {
			return err
		}
		if !kept {
			return m.abandoned(ctx, s, api.MigrationCancelled)
		}
		m.fence.hold(s, epoch)
		return m.copier.Forget(ctx, s.copyKey())
	}
	return step("admit", do, nil, nil)
}
