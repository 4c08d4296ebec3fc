// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/op"
)

// Journal is the runner's journal.
type Journal interface {
	op.Journal
	// Ops returns a kind's ops, oldest first: all, or the unfinished ones.
	Ops(ctx context.Context, kind string, unfinishedOnly bool) ([]op.Op, error)
}

// UnplugJournal has the ops and blobs of this host's journal.
type UnplugJournal interface {
	// Ops returns a kind's ops, oldest first: all, or the unfinished ones.
	Ops(ctx context.Context, kind string, unfinishedOnly bool) ([]op.Op, error)
	// Records returns the records of an op in order.
	Records(ctx context.Context, opID string) ([]op.Record, error)
	// PutBlob stores a key's data, durably.
	PutBlob(ctx context.Context, key string, data []byte) error
	// Blobs returns the data of the keys with this prefix.
	Blobs(ctx context.Context, prefix string) (map[string][]byte, error)
}
