// SPDX-License-Identifier: Apache-2.0

// Package workflow holds the state of what takes several changes and several hosts: the
// drains of pools, the moves with all guests paused, and the tasks that hosts are given.
// Each change of it is one transaction by the rules of package store. It knows nothing of
// who brings a workflow on: those are the loops in packages drain and pauseall, and the
// relay, which may be ended at any moment and begin anew from here.
package workflow

import (
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/registry/internal/store"
)

// Store is an open registry, with the state of its workflows.
type Store struct{ *store.Store }

// Open opens the registry as store.Open does. What is left in the queue for hosts of
// before is withdrawn.
func Open(ctx context.Context, path string, o store.Options) (*Store, error) {
	db, err := store.Open(ctx, path, o)
	if err != nil {
		return nil, err
	}
	s := &Store{db}
	if err := s.withdrawQueued(ctx, "volferry-registry"); err != nil {
		return nil, errors.Join(fmt.Errorf("open registry: %w", err), s.Close())
	}
	return s, nil
}

// Housekeep is that of store.Store, and forgets the tasks that nobody will ask for again.
func (s *Store) Housekeep(ctx context.Context) error {
	if err := s.expireTasks(ctx); err != nil {
		return err
	}
	return s.Store.Housekeep(ctx)
}

// changeTx is a change in the making of a workflow.
type changeTx struct{ *store.Tx }

// mutate is store.Mutate.
func mutate[T any](ctx context.Context, s *Store, call store.Call, what string, request any, do func(context.Context, *changeTx) (T, error)) (T, error) {
	return store.Mutate(ctx, s.Store, call, what, request, func(ctx context.Context, tx *store.Tx) (T, error) {
		return do(ctx, &changeTx{tx})
	})
}
