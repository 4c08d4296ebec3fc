// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
)

// Store is an open registry with its workflows, a field for each kind.
type Store struct {
	*store.Store
	Drains    *Drains
	Tasks     *Tasks
	Pauses    *Pauses
	LiveMoves *LiveMoves
	Shelf     *Shelf
	Rates     *Rates
}

func newStore(s *store.Store) *Store {
	pauses := &Pauses{db: s.DB, changed: ledger.NewNotifier()}
	return &Store{
		Store: s, Drains: &Drains{s.DB, s.Pools, s.Progress}, Tasks: &Tasks{s.DB}, Pauses: pauses, LiveMoves: &LiveMoves{pauses},
		Shelf: &Shelf{s.DB, s.Reports}, Rates: &Rates{s.DB},
	}
}

// Open opens the registry like store.Open. It withdraws the tasks that an earlier run has left
// queued.
func Open(ctx context.Context, path string, o store.Options) (*Store, error) {
	db, err := store.Open(ctx, path, o)
	if err != nil {
		return nil, err
	}
	s := newStore(db)
	if err := s.Tasks.withdrawQueued(ctx, "volferry-registry"); err != nil {
		return nil, errors.Join(fmt.Errorf("open registry: %w", err), s.Close())
	}
	return s, nil
}

// Housekeep deletes expired tasks, and calls store.Store.Housekeep.
func (s *Store) Housekeep(ctx context.Context) error {
	if err := s.Tasks.expire(ctx); err != nil {
		return err
	}
	return s.Store.Housekeep(ctx)
}
