// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/volferry/volferry/daemon/internal/op"
)

// Append implements op.Journal. The records must be the next records of their op. One statement
// stores all of them or none.
func (j *Journal) Append(ctx context.Context, records ...op.Record) error {
	const (
		insert = `INSERT INTO records (op, seq, at, step, kind, data) `
		record = `SELECT number, ?, ?, ?, ?, ? FROM ops WHERE id = ?
		AND ? = 1 + (SELECT coalesce(max(seq), 0) FROM records WHERE op = number)`
	)
	var args []any
	first := records[0]
	for i, r := range records {
		if r.OpID != first.OpID || r.Seq != first.Seq+int64(i) {
			return fmt.Errorf("append record %d of op %s: %w: it does not follow record %d of op %s", r.Seq, r.OpID, op.ErrJournal, first.Seq, first.OpID)
		}
		args = append(args, r.Seq, stamp(r.At), r.Step, string(r.Kind), text(r.Data), r.OpID, first.Seq)
	}
	query := insert + strings.Join(slices.Repeat([]string{record}, len(records)), ` UNION ALL `)
	res, err := j.exec(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("append record %d of op %s: %w", first.Seq, first.OpID, unavailable(err))
	}
	switch n, err := res.RowsAffected(); {
	case err != nil || n == int64(len(records)):
		return err
	case n != 0:
		return fmt.Errorf("append record %d of op %s: %w: %d records were stored of %d", first.Seq, first.OpID, op.ErrJournal, n, len(records))
	}
	if _, err := j.Op(ctx, first.OpID); err != nil {
		return fmt.Errorf("append record %d: %w", first.Seq, err)
	}
	return fmt.Errorf("append record %d of op %s: %w: it is not the one that is due", first.Seq, first.OpID, op.ErrJournal)
}

// Records implements op.Journal.
func (j *Journal) Records(ctx context.Context, opID string) ([]op.Record, error) {
	const query = `SELECT seq, at, step, records.kind, data FROM records JOIN ops ON number = op
		WHERE id = ? ORDER BY seq`
	records, err := list(ctx, j.reads, query, []any{opID}, func(rows *sql.Rows) (op.Record, error) {
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
