// SPDX-License-Identifier: Apache-2.0

// Package ledger is the registry's database without its rules. One writer commits waiting changes
// in groups, with the kept answers for repeated requests and the audit trail, a chain of hashes.
// It knows the caller and the name of each change, but not volumes, hosts or permissions.
package ledger

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/volferry/volferry/internal/sqlitedb"
)

// AuditCheck is the result of a check of the whole audit trail.
type AuditCheck struct {
	At     time.Time
	Events int64
	// Err names the first damaged event, nil if the trail is intact.
	Err error
}

// Ledger changes a database that has the tables events and idempotency. It is safe for
// concurrent use.
type Ledger struct {
	db           *sqlitedb.DB
	writer       *writer
	checkpointer *checkpointer
	commits      *Notifier
	lastAudit    atomic.Pointer[AuditCheck]
	faultPoint   func(name string)
	now          func() time.Time
}

// Start starts the writer for db. The caller must close db after Close.
func Start(ctx context.Context, db *sqlitedb.DB, o Options) (*Ledger, error) {
	end, err := ReadEnd(ctx, db.Read)
	if err != nil {
		return nil, err
	}
	wal, err := db.NewCheckpointer(ctx)
	if err != nil {
		return nil, err
	}
	l := &Ledger{db: db, commits: NewNotifier(), faultPoint: o.FaultPoint, now: o.Now}
	if l.now == nil {
		l.now = time.Now
	}
	l.writer = startWriter(db.Write, end, o, l.commits.Announce)
	l.checkpointer = startCheckpointer(wal, l.writer, checkpointPages)
	return l, nil
}

// Close finishes the started changes and ends the writer. Later changes get registry_unavailable.
func (l *Ledger) Close() error {
	err := l.checkpointer.stop()
	l.writer.stop()
	return err
}

// Submit runs do in a transaction and returns its error, or nil once the effect is on stable
// storage. If ctx ends first, the change may still be made. do may run more than once; only the
// last run counts.
func (l *Ledger) Submit(ctx context.Context, do func(context.Context, *Tx) error) error {
	return l.writer.submit(ctx, "", do)
}

// deleteAtOnce bounds the rows that DeleteInBatches deletes in one transaction; every other change
// waits for it.
const deleteAtOnce = 2000

// DeleteInBatches repeats a statement until it deletes fewer rows than its limit, the parameter
// after args.
func (l *Ledger) DeleteInBatches(ctx context.Context, query string, args ...any) error {
	args = append(args[:len(args):len(args)], deleteAtOnce)
	for {
		var deleted int64
		err := l.Submit(ctx, func(ctx context.Context, tx *Tx) error {
			result, err := tx.ExecContext(ctx, query, args...)
			if err != nil {
				return err
			}
			deleted, err = result.RowsAffected()
			return err
		})
		if err != nil {
			return err
		}
		if deleted < deleteAtOnce {
			return nil
		}
	}
}

// Checkpoint writes the log of commits into the database file and empties it, as far as no reader
// needs it.
func (l *Ledger) Checkpoint(ctx context.Context) error {
	// This checkpoint runs concurrently with the writer; the rest below makes every change wait.
	if err := l.checkpointer.checkpoint(ctx); err != nil {
		return err
	}
	return l.writer.pause(ctx, func() error { return l.db.TruncateLog(ctx) })
}

// Probe returns nil once an empty commit of the writer is on stable storage.
func (l *Ledger) Probe(ctx context.Context) error {
	return l.writer.pause(ctx, func() error { return l.db.Probe(ctx) })
}

// ResetStatements closes the writer's prepared statements and returns their texts, for tests.
func (l *Ledger) ResetStatements(ctx context.Context) (queries []string, err error) {
	err = l.writer.pause(ctx, func() (err error) {
		queries, err = l.writer.statements.reset()
		return err
	})
	return queries, err
}

// NextCommit returns a channel that the next commit closes. To miss no event, call it before
// Events and then wait.
func (l *Ledger) NextCommit() <-chan struct{} { return l.commits.Wait() }
