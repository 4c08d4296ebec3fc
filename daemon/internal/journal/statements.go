// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"database/sql"
	"sync"
)

type prepared struct{ *sql.Stmt }

// statements has the prepared statements of a pool, by query. Without them SQLite spent a third of
// a short read on parsing.
type statements struct {
	pool *sql.DB

	mu       sync.Mutex
	prepared map[string]prepared
}

func newStatements(pool *sql.DB) *statements {
	return &statements{pool: pool, prepared: map[string]prepared{}}
}

func (s *statements) of(ctx context.Context, query string) (prepared, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stmt, ok := s.prepared[query]; ok {
		return stmt, nil
	}
	stmt, err := s.pool.PrepareContext(ctx, query) //nolint:sqlclosecheck // it is kept
	if err != nil {
		return prepared{}, err
	}
	s.prepared[query] = prepared{stmt}
	return prepared{stmt}, nil
}
