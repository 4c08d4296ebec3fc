// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/op"
)

// Journal stores ops. A migration is the group of its ops.
type Journal interface {
	op.Journal
	// Ops returns all ops of a kind, or only the unfinished ones, oldest first.
	Ops(ctx context.Context, kind string, unfinishedOnly bool) ([]op.Op, error)
}
