// SPDX-License-Identifier: Apache-2.0

// Package workflow holds the state of what takes several changes and several hosts: the
// drains of pools, the moves with all guests paused, instances on their way to the shelf and
// back, and the tasks that hosts are given. Each change of it is one transaction by the
// rules of package store. It knows nothing of who brings a workflow on: those are the loops
// in packages drain and pauseall, and the relay, which may be ended at any moment and begin
// anew from here.
package workflow

import (
	"context"

	"github.com/volferry/volferry/registry/internal/store"
)

// Store is an open registry, with the state of its workflows.
type Store struct{ *store.Store }

// changeTx is a change in the making of a workflow.
type changeTx struct{ *store.Tx }

// mutate is store.Mutate.
func mutate[T any](ctx context.Context, s *Store, call store.Call, what string, request any, do func(context.Context, *changeTx) (T, error)) (T, error) {
	return store.Mutate(ctx, s.Store, call, what, request, func(ctx context.Context, tx *store.Tx) (T, error) {
		return do(ctx, &changeTx{tx})
	})
}
