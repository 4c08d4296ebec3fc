// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/op"
)

// Journal is the journal of the runner.
type Journal interface {
	op.Journal
	// Ops returns the ops of one kind, oldest first: all of them, or the unfinished ones.
	Ops(ctx context.Context, kind string, unfinishedOnly bool) ([]op.Op, error)
}

// UnplugJournal is the journal of this host, with its blobs.
type UnplugJournal interface {
	Journal
	// PutBlob stores data under a key, durably; it replaces the key's earlier data.
	PutBlob(ctx context.Context, key string, data []byte) error
	// Blobs returns, by key, the data of every key that begins with prefix.
	Blobs(ctx context.Context, prefix string) (map[string][]byte, error)
}
