// SPDX-License-Identifier: Apache-2.0

package pauseall

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/workflow"
)

func (l *Loop) cancel(ctx context.Context, p *workflow.Pause, why *api.Error) error {
	return Cancel(ctx, l.cfg.Phases, l.cfg.Log, call, p, why)
}

// set records the state of an instance.
func (l *Loop) set(ctx context.Context, p *workflow.Pause, g workflow.PauseInstance) error {
	_, err := l.cfg.Results.SetInstance(ctx, call, p.Migration.ID, p.Phase, g)
	return err
}
