// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"database/sql"
	"sync"
)

// statements are the prepared statements of a pool, by the texts of their queries, of which the
// package has few: SQLite takes longer to parse one than to answer it. They are closed with the pool.
type statements struct {
	pool *sql.DB

	mu       sync.Mutex
	prepared map[string]*sql.Stmt
}

func newStatements(pool *sql.DB) *statements {
	return &statements{pool: pool, prepared: map[string]*sql.Stmt{}}
}

// of returns the prepared statement of a query.
func (s *statements) of(ctx context.Context, query string) (*sql.Stmt, error) {
	s.mu.Lock()
	stmt := s.prepared[query]
	s.mu.Unlock()
	if stmt != nil {
		return stmt, nil
	}
	stmt, err := s.pool.PrepareContext(ctx, query) // which may wait for a connection
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.prepared[query]; other != nil {
		return other, stmt.Close()
	}
	s.prepared[query] = stmt
	return stmt, nil
}
