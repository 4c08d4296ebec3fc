// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"

	"github.com/volferry/volferry/internal/op"
)

// Journal is the journal of the runner.
type Journal interface {
	op.Journal
	// Ops returns the ops of one kind, oldest first; all of them, or those that
	// are not finished.
	Ops(ctx context.Context, kind string, unfinishedOnly bool) ([]op.Op, error)
}
