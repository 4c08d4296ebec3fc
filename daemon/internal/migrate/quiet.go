// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/request"
)

// Quiet returns when no guest is paused for a switch, or when ctx ends. It keeps
// none from being paused afterwards.
func (m *Manager) Quiet(ctx context.Context) {
	for m.switching() && request.Sleep(ctx, stopPoll) == nil {
	}
}
