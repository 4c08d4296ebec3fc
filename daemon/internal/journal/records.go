// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/op"
)

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
