// SPDX-License-Identifier: Apache-2.0

// Package workflow has the state of work that needs several changes and hosts: drains of pools,
// moves that the registry leads, shelving of instances, and tasks for hosts. Each change is one
// transaction by the rules of package store. The relay and the loops of other packages advance the
// work, from the stored state after any stop.
package workflow

import (
	"context"

	"github.com/volferry/volferry/registry/internal/store"
)

type changeTx struct{ *store.Tx }

func mutate[T any](ctx context.Context, db *store.DB, call store.Call, what string, request any, do func(context.Context, *changeTx) (T, error)) (T, error) {
	return store.Mutate(ctx, db, call, what, request, func(ctx context.Context, tx *store.Tx) (T, error) {
		return do(ctx, &changeTx{tx})
	})
}
