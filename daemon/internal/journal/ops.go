// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/op"
)

const (
	selectOps = `SELECT id, kind, group_id, keys, input, steps, commit_step, created_at FROM ops`
	// The index records_finished suffices for isUnfinished.
	isUnfinished = `NOT EXISTS (SELECT 1 FROM records WHERE op = number AND kind = 'finished')`
	inOrder      = ` ORDER BY number`
)

// Op implements op.Journal.
func (j *Journal) Op(ctx context.Context, id string) (op.Op, error) {
	ops, err := j.listOps(ctx, selectOps+` WHERE id = ?`, id)
	if err != nil {
		return op.Op{}, fmt.Errorf("read op %s: %w", id, err)
	}
	if len(ops) == 0 {
		return op.Op{}, fmt.Errorf("read op %s: %w", id, op.ErrNotFound)
	}
	return ops[0], nil
}

// Unfinished implements op.Journal.
func (j *Journal) Unfinished(ctx context.Context) ([]op.Op, error) {
	ops, err := j.listOps(ctx, selectOps+` WHERE `+isUnfinished+inOrder)
	if err != nil {
		return nil, fmt.Errorf("read the unfinished ops: %w", err)
	}
	return ops, nil
}

// Group implements op.Journal.
func (j *Journal) Group(ctx context.Context, group string) ([]op.Op, error) {
	ops, err := j.listOps(ctx, selectOps+` WHERE group_id = ? AND group_id <> ''`+inOrder, group)
	if err != nil {
		return nil, fmt.Errorf("read the ops of group %s: %w", group, err)
	}
	return ops, nil
}

// Ops returns the ops of a kind, oldest first. An empty kind stands for every kind. With
// unfinishedOnly it returns only ops without a finished record.
func (j *Journal) Ops(ctx context.Context, kind string, unfinishedOnly bool) ([]op.Op, error) {
	const query = selectOps + ` WHERE (?1 = '' OR kind = ?1) AND (NOT ?2 OR ` + isUnfinished + `)` + inOrder
	ops, err := j.listOps(ctx, query, kind, unfinishedOnly)
	if err != nil {
		return nil, fmt.Errorf("read the ops of kind %q: %w", kind, err)
	}
	return ops, nil
}

func (j *Journal) listOps(ctx context.Context, query string, args ...any) ([]op.Op, error) {
	return list(ctx, j.reads, query, args, scanOp)
}

func scanOp(rows *sql.Rows) (op.Op, error) {
	var (
		o                    op.Op
		keys, steps, created string
		input                sql.NullString
	)
	if err := rows.Scan(&o.ID, &o.Kind, &o.Group, &keys, &input, &steps, &o.Commit, &created); err != nil {
		return op.Op{}, err
	}
	if err := json.Unmarshal([]byte(keys), &o.Keys); err != nil {
		return op.Op{}, fmt.Errorf("decode the keys of op %s: %w", o.ID, err)
	}
	if len(o.Keys) == 0 {
		o.Keys = nil
	}
	if err := json.Unmarshal([]byte(steps), &o.Steps); err != nil {
		return op.Op{}, fmt.Errorf("decode the steps of op %s: %w", o.ID, err)
	}
	if len(o.Steps) == 0 {
		o.Steps = nil
	}
	o.Input = fromText(input)
	var err error
	o.CreatedAt, err = time.Parse(time.RFC3339Nano, created)
	return o, err
}

// Create implements op.Journal.
func (j *Journal) Create(ctx context.Context, o op.Op) (op.Op, error) {
	keys, err := json.Marshal(append([]string{}, o.Keys...))
	if err != nil {
		return op.Op{}, fmt.Errorf("create op %s: encode its keys: %w", o.ID, err)
	}
	steps, err := json.Marshal(append([]op.StepRef{}, o.Steps...))
	if err != nil {
		return op.Op{}, fmt.Errorf("create op %s: encode its steps: %w", o.ID, err)
	}
	const insert = `INSERT INTO ops (id, kind, group_id, keys, input, steps, commit_step, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO NOTHING`
	res, err := j.exec(ctx, insert, o.ID, o.Kind, o.Group, string(keys), text(o.Input), string(steps), o.Commit, stamp(o.CreatedAt))
	if err != nil {
		return op.Op{}, fmt.Errorf("create op %s: %w", o.ID, unavailable(err))
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return o, err
	}
	stored, err := j.Op(ctx, o.ID)
	if err != nil {
		return op.Op{}, fmt.Errorf("create op %s: %w", o.ID, err)
	}
	if stored.Kind != o.Kind || stored.Group != o.Group || string(stored.Input) != string(o.Input) {
		return op.Op{}, fmt.Errorf("create op %s: %w", o.ID, op.ErrMismatch)
	}
	return stored, nil
}
