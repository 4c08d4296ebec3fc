// SPDX-License-Identifier: Apache-2.0

// Package workflow holds the state of what takes several changes and several hosts: drains
// of pools, moves with all guests paused, instances on their way to the shelf and back, and
// tasks for hosts. Each change is one transaction by the rules of package store. The
// package does not know who advances a workflow: that is for the loops in packages drain
// and pauseall, and for the relay, which may end at any moment and go on from here.
package workflow

import (
	"context"

	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
)

// Store is an open registry, with the state of its workflows.
type Store struct {
	*store.Store
	// pauses is of changes of the moves that the registry leads.
	pauses *ledger.Notifier
}

// changeTx is a change in the making of a workflow.
type changeTx struct{ *store.Tx }

// mutate is store.Mutate.
func mutate[T any](ctx context.Context, s *Store, call store.Call, what string, request any, do func(context.Context, *changeTx) (T, error)) (T, error) {
	return store.Mutate(ctx, s.Store, call, what, request, func(ctx context.Context, tx *store.Tx) (T, error) {
		return do(ctx, &changeTx{tx})
	})
}
