// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/volferry/volferry/internal/sqlitedb"
)

// Tx is the writer's transaction: changes run in it one after the other, and
// each can be undone alone. Its queries run on prepared statements, so rows are
// read to their end, or closed, before the same query is made again.
type Tx struct {
	tx         *sql.Tx
	statements *statements
	bound      map[string]prepared // the statements that it has used
	// savepoints says that each change has a savepoint as soon as it writes.
	savepoints bool
	saved      bool
	// wrote says that the running change has written something.
	wrote bool
	// broken is what storage said, in a way after which SQLite may have ended the
	// transaction by itself.
	broken error
	// end is where the audit trail ends with what was done so far; nil is unknown.
	end, endBefore *End
	cache          Cache
	// answers says of keys whether there may be an answer under them. Of others that is not known.
	answers map[string]bool
	// after is what is to be done after the commit.
	after       []func()
	afterBefore int
}

// commit returns once everything is on stable storage.
func (t *Tx) commit() error {
	if err := t.tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	for _, do := range t.after {
		do()
	}
	return nil
}

// rollback undoes everything. That SQLite has done so already is no error.
func (t *Tx) rollback() error {
	if err := t.tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) && t.broken == nil {
		return fmt.Errorf("roll back: %w", err)
	}
	return nil
}

// OnCommit has do run by the writer when the running change is on stable storage,
// before it is answered.
func (t *Tx) OnCommit(do func()) { t.after = append(t.after, do) }

func (t *Tx) beginChange() {
	t.saved, t.wrote, t.endBefore, t.afterBefore = false, false, t.end, len(t.after)
}

// endChange keeps what the running change did, or undoes it. Its error means that
// the transaction cannot go on.
func (t *Tx) endChange(ctx context.Context, keep bool) error {
	switch {
	case t.broken != nil:
		return t.broken
	case keep && t.saved:
		return t.runNoArgs(ctx, "RELEASE change")
	case keep:
		return nil
	}
	t.end, t.after = t.endBefore, t.after[:t.afterBefore]
	t.cache.Undo()
	switch {
	case t.saved:
		if err := t.runNoArgs(ctx, "ROLLBACK TO change"); err != nil {
			return err
		}
		return t.runNoArgs(ctx, "RELEASE change")
	case t.wrote:
		return errNeedsSavepoints
	}
	return nil
}

// errNeedsSavepoints says that a change was refused after it had written, and that
// nothing but the whole transaction can be undone.
var errNeedsSavepoints = errors.New("a change cannot be undone alone")

func (t *Tx) runNoArgs(ctx context.Context, query string) error {
	if _, err := t.run(ctx, query); err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	return nil
}

// ExecContext is as of sql.Tx.
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	t.cache.BeforeExec(query)
	return t.write(ctx, query, args...)
}

// write is ExecContext for what touches no table that a Cache may be of.
func (t *Tx) write(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if t.savepoints && !t.saved {
		if err := t.runNoArgs(ctx, "SAVEPOINT change"); err != nil {
			return nil, err
		}
		t.saved = true
	}
	result, err := t.run(ctx, query, args...)
	// A statement that fails leaves nothing behind.
	t.wrote = t.wrote || err == nil
	return result, err
}

func (t *Tx) run(ctx context.Context, query string, args ...any) (result sql.Result, err error) {
	if stmt, ok := t.statement(ctx, query); ok {
		result, err = stmt.ExecContext(ctx, args...)
	} else {
		result, err = t.tx.ExecContext(ctx, query, args...)
	}
	if sqlitedb.StorageFailed(err) {
		t.broken = err
	}
	return result, err
}

// QueryContext is as of sql.Tx.
func (t *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if stmt, ok := t.statement(ctx, query); ok {
		return stmt.QueryContext(ctx, args...)
	}
	return t.tx.QueryContext(ctx, query, args...)
}

// QueryRowContext is as of sql.Tx.
func (t *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if stmt, ok := t.statement(ctx, query); ok {
		return stmt.QueryRowContext(ctx, args...)
	}
	return t.tx.QueryRowContext(ctx, query, args...)
}

func (t *Tx) statement(ctx context.Context, query string) (prepared, bool) {
	if stmt, ok := t.bound[query]; ok {
		return stmt, true
	}
	stmt, ok := t.statements.statement(ctx, t.tx, query)
	if ok {
		t.bound[query] = stmt
	}
	return stmt, ok
}
