// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/op"
)

// Journal is the runner's journal.
type Journal interface {
	op.Journal
	// Ops returns the ops of a kind, oldest first, or only the unfinished ones.
	Ops(ctx context.Context, kind string, unfinishedOnly bool) ([]op.Op, error)
}

// UnplugJournal reads and writes this host's journal. journal.Journal documents the calls.
type UnplugJournal interface {
	Ops(ctx context.Context, kind string, unfinishedOnly bool) ([]op.Op, error)
	Records(ctx context.Context, opID string) ([]op.Record, error)
	PutBlob(ctx context.Context, key string, data []byte) error
	Blobs(ctx context.Context, prefix string) (map[string][]byte, error)
}
