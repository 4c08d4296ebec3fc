// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/atomicfile"
	"github.com/volferry/volferry/internal/op"
	"github.com/volferry/volferry/internal/sqlitedb"
)

// Journal is an op.Journal in a SQLite file. Every method that writes returns
// nil only after the data is on stable storage. Errors of the database (full
// disk, I/O, read-only) wrap op.ErrJournal, and what was to be written may then
// be there or not.
type Journal struct {
	db   *sqlitedb.DB
	path string
}

var _ op.Journal = (*Journal)(nil)

// Open opens the journal at path, creating it with mode 0600 if it is missing.
// One process at a time may have it open.
func Open(ctx context.Context, path string) (*Journal, error) {
	db, err := sqlitedb.Open(ctx, path, schema)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", unavailable(err))
	}
	return &Journal{db: db, path: path}, nil
}

// MigratedFrom is the backup that was made when the journal was opened, since its schema was
// an older one; "" if it was not.
func (j *Journal) MigratedFrom() string { return j.db.MigratedFrom }

// Close closes the file. Nothing may be running that uses the journal.
func (j *Journal) Close() error { return j.db.Close() }

// Probe returns nil if the journal has taken a record of nothing. It leaves the room that is
// kept for records to the records.
func (j *Journal) Probe(ctx context.Context) error {
	if err := j.db.Probe(ctx); err != nil {
		return fmt.Errorf("probe the journal: %w", unavailable(err))
	}
	return nil
}

// exec makes one change. On a full disk it uses the room that is kept for the files of
// the directory, see atomicfile.Reserve.
func (j *Journal) exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	for {
		res, err := j.db.Write.ExecContext(ctx, query, args...)
		if !sqlitedb.IsFull(err) || !atomicfile.MakeRoom(j.path) {
			return res, err
		}
	}
}

// Create implements op.Journal.
func (j *Journal) Create(ctx context.Context, o op.Op) error {
	keys, err := json.Marshal(append([]string{}, o.Keys...))
	if err != nil {
		return fmt.Errorf("create op %s: encode its keys: %w", o.ID, err)
	}
	const insert = `INSERT INTO ops (id, kind, group_id, keys, input, created_at) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO NOTHING`
	res, err := j.exec(ctx, insert, o.ID, o.Kind, o.Group, string(keys), text(o.Input), stamp(o.CreatedAt))
	if err != nil {
		return fmt.Errorf("create op %s: %w", o.ID, unavailable(err))
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return err
	}
	old, err := j.Op(ctx, o.ID)
	if err != nil {
		return fmt.Errorf("create op %s: %w", o.ID, err)
	}
	if old.Kind != o.Kind || old.Group != o.Group || string(old.Input) != string(o.Input) {
		return fmt.Errorf("create op %s: %w", o.ID, op.ErrMismatch)
	}
	return nil
}

// Append implements op.Journal. The record must be the next one of its op.
func (j *Journal) Append(ctx context.Context, r op.Record) error {
	const insert = `INSERT INTO records (op, seq, at, step, kind, data)
		SELECT number, ?2, ?3, ?4, ?5, ?6 FROM ops WHERE id = ?1
		AND ?2 = 1 + (SELECT coalesce(max(seq), 0) FROM records WHERE op = number)`
	res, err := j.exec(ctx, insert, r.OpID, r.Seq, stamp(r.At), r.Step, string(r.Kind), text(r.Data))
	if err != nil {
		return fmt.Errorf("append record %d of op %s: %w", r.Seq, r.OpID, unavailable(err))
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return err
	}
	if _, err := j.Op(ctx, r.OpID); err != nil {
		return fmt.Errorf("append record %d: %w", r.Seq, err)
	}
	return fmt.Errorf("append record %d of op %s: %w: it is not the one that is due", r.Seq, r.OpID, op.ErrJournal)
}

// Records implements op.Journal.
func (j *Journal) Records(ctx context.Context, opID string) ([]op.Record, error) {
	const query = `SELECT seq, at, step, records.kind, data FROM records JOIN ops ON number = op
		WHERE id = ? ORDER BY seq`
	records, err := list(ctx, j.db.Read, query, []any{opID}, func(rows *sql.Rows) (op.Record, error) {
		r := op.Record{OpID: opID}
		var at string
		var data sql.NullString
		if err := rows.Scan(&r.Seq, &at, &r.Step, &r.Kind, &data); err != nil {
			return op.Record{}, err
		}
		r.Data = fromText(data)
		var err error
		r.At, err = time.Parse(time.RFC3339Nano, at)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the records of op %s: %w", opID, err)
	}
	return records, nil
}

// unavailable marks an error of the database as one of the journal.
func unavailable(err error) error { return fmt.Errorf("%w: %w", op.ErrJournal, err) }

// list runs a query and scans its rows.
func list[T any](ctx context.Context, db *sql.DB, query string, args []any, scan func(*sql.Rows) (T, error)) (all []T, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
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

// text stores JSON as text, and none as NULL.
func text(data json.RawMessage) sql.NullString {
	return sql.NullString{String: string(data), Valid: len(data) > 0}
}

func fromText(s sql.NullString) json.RawMessage {
	if !s.Valid {
		return nil
	}
	return json.RawMessage(s.String)
}
