// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
)

// Querier runs queries: it is the read pool, or the transaction of a change.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Scanner is a row, by itself or as the current one of several.
type Scanner interface{ Scan(dest ...any) error }

// View makes several queries against one state of the database.
func View[T any](ctx context.Context, db *sql.DB, read func(Querier) (T, error)) (out T, err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return out, fmt.Errorf("begin to read: %w", err)
	}
	// There is nothing to keep, and an error that matters came earlier.
	defer func() { _ = tx.Rollback() }()
	out, err = read(tx)
	return out, Unreadable(err)
}

// Unreadable returns the error that tells a caller that the database cannot be read, if err
// means that; else it returns err.
func Unreadable(err error) error {
	if sqlitedb.StorageFailed(err) {
		return api.Errorf(api.CodeRegistryUnavailable, "the registry cannot read its database: %v", err)
	}
	return err
}

// EachRow calls do with every row of a query, until do returns false. It keeps nothing of
// the rows.
func EachRow(ctx context.Context, q Querier, do func(Scanner) (more bool, err error), query string, args ...any) (err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("query: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		more, err := do(rows)
		if err != nil {
			return fmt.Errorf("scan row: %w", err)
		}
		if !more {
			return nil
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	return nil
}

// QueryAll returns the result of scan for every row. If there is no row the list is empty
// and not nil.
func QueryAll[T any](ctx context.Context, q Querier, scan func(Scanner) (T, error), query string, args ...any) ([]T, error) {
	all := []T{}
	err := EachRow(ctx, q, func(row Scanner) (more bool, err error) {
		v, err := scan(row)
		all = append(all, v)
		return true, err
	}, query, args...)
	if err != nil {
		return nil, err
	}
	return all, nil
}

// ReadAll is QueryAll for a read with a single query.
func ReadAll[T any](ctx context.Context, db *sql.DB, scan func(Scanner) (T, error), query string, args ...any) ([]T, error) {
	all, err := QueryAll(ctx, db, scan, query, args...)
	return all, Unreadable(err)
}

// ScanInto returns a function for QueryAll and ReadAll that scans a row into the fields of
// a new value and returns the value. In `return v, row.Scan(&v.f)` Go may evaluate v before
// the scan has filled it.
func ScanInto[T any](fields func(*T) []any) func(Scanner) (T, error) {
	return func(row Scanner) (v T, err error) {
		err = row.Scan(fields(&v)...)
		return v, err
	}
}

// ScanString scans a row with one text.
func ScanString(row Scanner) (string, error) {
	var v string
	err := row.Scan(&v)
	return v, err
}

// FromMicros returns the time that is stored as microseconds since 1970.
func FromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }
