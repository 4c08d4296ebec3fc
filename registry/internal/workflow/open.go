// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
)

// Open opens the registry like store.Open, and withdraws the tasks that an earlier run has left
// queued.
func Open(ctx context.Context, path string, o store.Options) (*Store, error) {
	db, err := store.Open(ctx, path, o)
	if err != nil {
		return nil, err
	}
	s := &Store{Store: db, pauses: ledger.NewNotifier()}
	if err := s.withdrawQueued(ctx, "volferry-registry"); err != nil {
		return nil, errors.Join(fmt.Errorf("open registry: %w", err), s.Close())
	}
	return s, nil
}

// Housekeep deletes expired tasks, and calls store.Store.Housekeep.
func (s *Store) Housekeep(ctx context.Context) error {
	if err := s.expireTasks(ctx); err != nil {
		return err
	}
	return s.Store.Housekeep(ctx)
}
