// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/atomicfile"
	"github.com/volferry/volferry/internal/sqlitedb"
)

// Journal is an op.Journal in a SQLite file. A method that writes returns nil only after the data
// is on stable storage. An error of the database (full disk, I/O, read-only) wraps op.ErrJournal;
// the data may be stored nevertheless.
type Journal struct {
	db     *sqlitedb.DB
	path   string
	reads  *statements
	writes *statements
}

var _ op.Journal = (*Journal)(nil)

// Open opens the journal at path. If the journal is missing, it makes one with mode 0600. One
// process at a time may have it open. On a full disk Open uses the space reserved in the directory
// (atomicfile.Reserve): SQLite creates a file there.
func Open(ctx context.Context, path string) (*Journal, error) {
	j := &Journal{path: path}
	err := atomicfile.UseReserve(path, sqlitedb.IsFull, func() (err error) {
		j.db, err = sqlitedb.Open(ctx, path, schema)
		return err
	})
	switch {
	case sqlitedb.IsFull(err):
		return nil, fmt.Errorf("the disk is full and nothing is left of the room that is kept for the journal: make room in %s: %w", filepath.Dir(path), unavailable(err))
	case err != nil:
		return nil, fmt.Errorf("open journal: %w", unavailable(err))
	}
	j.reads, j.writes = newStatements(j.db.Read), newStatements(j.db.Write)
	return j, nil
}

// MigratedFrom returns the path of the backup that Open made before it upgraded an older schema; ""
// if the schema was current.
func (j *Journal) MigratedFrom() string { return j.db.MigratedFrom }

// Close closes the file. No other call may be in progress.
func (j *Journal) Close() error { return j.db.Close() }

// Probe stores an empty record, as a test of the journal, without the space reserved for records.
func (j *Journal) Probe(ctx context.Context) error {
	if err := j.db.Probe(ctx); err != nil {
		return fmt.Errorf("probe the journal: %w", unavailable(err))
	}
	return nil
}

// exec makes one change. On a full disk it uses the reserved space, as Open does.
func (j *Journal) exec(ctx context.Context, query string, args ...any) (res sql.Result, err error) {
	err = atomicfile.UseReserve(j.path, sqlitedb.IsFull, func() error {
		stmt, err := j.writes.of(ctx, query)
		if err == nil {
			res, err = stmt.ExecContext(ctx, args...)
		}
		return err
	})
	return res, err
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", op.ErrJournal, err) }

func list[T any](ctx context.Context, from *statements, query string, args []any, scan func(*sql.Rows) (T, error)) (all []T, err error) {
	stmt, err := from.of(ctx, query)
	if err != nil {
		return nil, unavailable(err)
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() {
		if closeErr := rows.Close(); closeErr != nil && err == nil {
			err = unavailable(closeErr)
		}
	}()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, unavailable(err)
		}
		all = append(all, v)
	}
	if err := rows.Err(); err != nil {
		return nil, unavailable(err)
	}
	return all, nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func text(data json.RawMessage) sql.NullString {
	return sql.NullString{String: string(data), Valid: len(data) > 0}
}

func fromText(s sql.NullString) json.RawMessage {
	if !s.Valid {
		return nil
	}
	return json.RawMessage(s.String)
}
