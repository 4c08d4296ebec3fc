// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/history"
	"github.com/volferry/volferry/registry/internal/hostcache"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/ratelimit"
)

// DB is the open database of a registry, with the values in memory that all changes share. It is
// safe for concurrent use.
type DB struct {
	sqlite      *sqlitedb.DB
	ledger      *ledger.Ledger
	cache       *rowCache
	hosts       *hostcache.Cache
	history     *history.History
	changeBytes *ratelimit.Bytes
	now         func() time.Time
}

// Close finishes the started changes and closes the file. Later requests get registry_unavailable.
func (s *DB) Close() error {
	if err := errors.Join(s.ledger.Close(), s.sqlite.Close()); err != nil {
		return fmt.Errorf("close registry: %w", err)
	}
	return nil
}

// MigratedFrom returns the path of the backup that Open made before it upgraded an older schema,
// "" if there is none.
func (s *DB) MigratedFrom() string { return s.sqlite.MigratedFrom }

// Reader returns the database for reads. They see the last commit.
func (s *DB) Reader() *sql.DB { return s.sqlite.Read }

// Now returns the time of the registry's clock.
func (s *DB) Now() time.Time { return s.now() }

// DeleteInBatches is ledger.Ledger.DeleteInBatches.
func (s *DB) DeleteInBatches(ctx context.Context, query string, args ...any) error {
	return s.ledger.DeleteInBatches(ctx, query, args...)
}

// Probe returns nil if a test change of the database succeeds. In a restored, read-only database
// it tests nothing and returns nil; use ReadOnly there.
func (s *DB) Probe(ctx context.Context) error {
	if s.history.Restored() {
		return nil
	}
	return s.ledger.Probe(ctx)
}

// ViewOne reads the object that ref names.
func ViewOne[T any](ctx context.Context, db *DB, k Kind, ref string, byID func(context.Context, ledger.Querier, string) (T, error)) (T, error) {
	return ledger.View(ctx, db.sqlite.Read, func(q ledger.Querier) (T, error) {
		id, err := Resolve(ctx, q, k, ref)
		if err != nil {
			var none T
			return none, err
		}
		return byID(ctx, q, id)
	})
}
