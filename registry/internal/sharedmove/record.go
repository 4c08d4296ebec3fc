// SPDX-License-Identifier: Apache-2.0

package sharedmove

import (
	"context"

	"github.com/volferry/volferry/registry/internal/workflow"
)

func (l *Loop) set(ctx context.Context, p *workflow.Pause, g workflow.PauseInstance) error {
	_, err := l.cfg.Results.SetInstance(ctx, call(p), p.Migration.ID, p.Phase, g)
	return err
}
