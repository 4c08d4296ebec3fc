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

// Querier runs queries, in the read pool or in the transaction of a change.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Scanner is a single row, or the current row of several.
type Scanner interface{ Scan(dest ...any) error }

// View runs several queries on one snapshot of the database.
func View[T any](ctx context.Context, db *sql.DB, read func(Querier) (T, error)) (out T, err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return out, fmt.Errorf("begin to read: %w", err)
	}
	// A read has nothing to commit, and a relevant error was already returned.
	defer func() { _ = tx.Rollback() }()
	out, err = read(tx)
	return out, Unreadable(err)
}

// Unreadable returns registry_unavailable if err means that the database cannot be read, else err.
func Unreadable(err error) error {
	if sqlitedb.StorageFailed(err) {
		return api.Errorf(api.CodeRegistryUnavailable, "the registry cannot read its database: %v", err)
	}
	return err
}

// EachRow calls do with every row of a query, until do returns false.
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

// QueryAll returns the result of scan for every row. Without an error the list is never nil.
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

// ReadAll is QueryAll outside of a transaction, with its errors passed through Unreadable.
func ReadAll[T any](ctx context.Context, db *sql.DB, scan func(Scanner) (T, error), query string, args ...any) ([]T, error) {
	all, err := QueryAll(ctx, db, scan, query, args...)
	return all, Unreadable(err)
}

// ScanInto returns a scan function that fills fields of a new value. It exists because in `return
// v, row.Scan(&v.f)` Go may evaluate v before the scan.
func ScanInto[T any](fields func(*T) []any) func(Scanner) (T, error) {
	return func(row Scanner) (v T, err error) {
		err = row.Scan(fields(&v)...)
		return v, err
	}
}

// ScanString scans a row with one text column.
func ScanString(row Scanner) (string, error) {
	var v string
	err := row.Scan(&v)
	return v, err
}

// FromMicros converts microseconds since 1970 to a time in UTC.
func FromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }
