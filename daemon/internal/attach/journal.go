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

// UnplugJournal is this host's journal with its blobs.
type UnplugJournal interface {
	Journal
	// PutBlob stores a key's data, durably.
	PutBlob(ctx context.Context, key string, data []byte) error
	// Blobs returns the data of the keys with this prefix.
	Blobs(ctx context.Context, prefix string) (map[string][]byte, error)
}
