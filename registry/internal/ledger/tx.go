// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/volferry/volferry/internal/sqlitedb"
)

// Tx is the writer's transaction. Changes run in it one after the other, and each can be undone
// alone. Its queries use prepared statements: read all rows, or close them, before the same query
// runs again.
type Tx struct {
	tx         *sql.Tx
	statements *statements
	bound      map[string]prepared // the statements that it has used
	// savepoints means that each change sets a savepoint before its first write.
	savepoints bool
	saved      bool
	wrote      bool
	// broken is a storage error after which SQLite may have ended the transaction itself.
	broken error
	// end is the end of the audit trail so far, nil if unknown.
	end, endBefore *End
	cache          Cache
	// answers has false for keys without an answer. Other keys may have one.
	answers     map[string]bool
	after       []func()
	afterBefore int
}

func (t *Tx) commit() error {
	if err := t.tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	for _, do := range t.after {
		do()
	}
	return nil
}

// rollback undoes the transaction. It returns no error if SQLite has already undone it.
func (t *Tx) rollback() error {
	if err := t.tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) && t.broken == nil {
		return fmt.Errorf("roll back: %w", err)
	}
	return nil
}

// OnCommit makes the writer run do when the change is on stable storage, before it is answered.
func (t *Tx) OnCommit(do func()) { t.after = append(t.after, do) }

func (t *Tx) beginChange() {
	t.saved, t.wrote, t.endBefore, t.afterBefore = false, false, t.end, len(t.after)
}

// endChange keeps or undoes the running change. After an error the transaction cannot continue.
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

// errNeedsSavepoints means that a refused change has written: without savepoints only the whole
// transaction can be undone.
var errNeedsSavepoints = errors.New("a change cannot be undone alone")

func (t *Tx) runNoArgs(ctx context.Context, query string) error {
	if _, err := t.run(ctx, query); err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	return nil
}

// ExecContext is as in sql.Tx.
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	t.cache.BeforeExec(query)
	return t.write(ctx, query, args...)
}

func (t *Tx) write(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if t.savepoints && !t.saved {
		if err := t.runNoArgs(ctx, "SAVEPOINT change"); err != nil {
			return nil, err
		}
		t.saved = true
	}
	result, err := t.run(ctx, query, args...)
	// A failed statement changes nothing.
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

// QueryContext is as in sql.Tx.
func (t *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if stmt, ok := t.statement(ctx, query); ok {
		return stmt.QueryContext(ctx, args...)
	}
	return t.tx.QueryContext(ctx, query, args...)
}

// QueryRowContext is as in sql.Tx.
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
