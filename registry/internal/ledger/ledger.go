// SPDX-License-Identifier: Apache-2.0

// Package ledger is the registry's database beneath its rules: one writer, which commits
// waiting changes in groups; the answers that a repeated request gets again; and the audit
// trail, whose events are chained by their hashes. It knows who asks for a change and what
// the change is called. It knows nothing of volumes, of hosts, or of who may do what: that
// is package store.
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
	// Err says where the trail is not what was written. It is nil if the trail is intact.
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

// Start begins to take changes of db. The caller still has to close db.
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

// Close ends the writer, which first finishes the changes that it has begun. Later changes
// are refused with registry_unavailable.
func (l *Ledger) Close() error {
	err := l.checkpointer.stop()
	l.writer.stop()
	return err
}

// Submit runs do in a transaction and returns its error, or nil once the effect is on
// stable storage. If ctx ends first, the change may still be made. Do may be run more than
// once; only the last time counts.
func (l *Ledger) Submit(ctx context.Context, do func(context.Context, *Tx) error) error {
	return l.writer.submit(ctx, "", do)
}

// deleteAtOnce is how many rows DeleteInBatches deletes in one transaction, which
// everybody waits for.
const deleteAtOnce = 2000

// DeleteInBatches repeats a statement that deletes at most as many rows as its last
// parameter says, until it deletes fewer. The other parameters are args.
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

// Checkpoint writes the log of commits into the file and empties it, as far as no
// reader needs it.
func (l *Ledger) Checkpoint(ctx context.Context) error {
	// Beside the writer first: what is left keeps everybody waiting.
	if err := l.checkpointer.checkpoint(ctx); err != nil {
		return err
	}
	return l.writer.pause(ctx, func() error { return l.db.TruncateLog(ctx) })
}

// Probe returns nil once the writer has made an empty commit and it is on stable storage.
func (l *Ledger) Probe(ctx context.Context) error {
	return l.writer.pause(ctx, func() error { return l.db.Probe(ctx) })
}

// ResetStatements closes the writer's prepared statements and returns their texts, so that
// a test learns which they are. The writer prepares statements again as changes use them.
func (l *Ledger) ResetStatements(ctx context.Context) (queries []string, err error) {
	err = l.writer.pause(ctx, func() (err error) {
		queries, err = l.writer.statements.reset()
		return err
	})
	return queries, err
}

// NextCommit returns a channel that is closed at the first commit after the call. Call it
// before Events, and wait then, so that no event is missed.
func (l *Ledger) NextCommit() <-chan struct{} { return l.commits.Wait() }
