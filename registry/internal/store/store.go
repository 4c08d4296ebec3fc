// SPDX-License-Identifier: Apache-2.0

// Package store holds the registry's truth: who may use what, in one SQLite file. It has
// the rules of volumes, instances, attachments and migrations, and their locks. It knows
// nothing of HTTP, of libvirt, or of the bytes of volumes. Package ledger puts a change on
// stable storage, with its audit event and its answer.
//
// Every change is one transaction, so that a crash leaves all of it or nothing. A repeated
// request is answered and not carried out again. Every error that a caller can do something
// about is an *api.Error.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/history"
	"github.com/volferry/volferry/registry/internal/hostcache"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/ratelimit"
)

// Store is an open registry. It is safe for concurrent use.
type Store struct {
	db      *sqlitedb.DB
	ledger  *ledger.Ledger
	cache   *rowCache
	hosts   *hostcache.Cache
	history *history.History
	// postLimit bounds the events that hosts post, refusalLimit what is audited of calls that
	// were refused.
	postLimit, refusalLimit *ratelimit.Limit
	// reportLimit bounds the reports of a host that the database has to take.
	reportLimit *ratelimit.Limit
	// changeBytes is what the changes of each host may add.
	changeBytes *ratelimit.Bytes
	// progress is of what hosts say of their migrations.
	progress    *ledger.Notifier
	onReadOnly  func(reason string)
	onDoubt     func(host string)
	sharedPools map[string][]string
	now         func() time.Time
}

// Close ends the writer, which first finishes the changes that it has begun, and closes the
// file. Later requests are refused with registry_unavailable.
func (s *Store) Close() error {
	if err := errors.Join(s.ledger.Close(), s.db.Close()); err != nil {
		return fmt.Errorf("close registry: %w", err)
	}
	return nil
}

// MigratedFrom returns the path of the backup that was made when the database was opened,
// because it had an older schema; "" if it had not.
func (s *Store) MigratedFrom() string { return s.db.MigratedFrom }

// Reader reads the database as of the last commit.
func (s *Store) Reader() *sql.DB { return s.db.Read }

// Now returns the time of the registry's clock.
func (s *Store) Now() time.Time { return s.now() }

// InvalidateReports has the next report of each host stored, even if it is the same as its
// last one.
func (s *Store) InvalidateReports(hostIDs ...string) { s.hosts.Invalidate(hostIDs...) }

// DeleteInBatches is ledger.Ledger.DeleteInBatches.
func (s *Store) DeleteInBatches(ctx context.Context, query string, args ...any) error {
	return s.ledger.DeleteInBatches(ctx, query, args...)
}

// Probe returns nil if the database takes changes. It does not touch a database that was
// restored from a backup; ReadOnly says if it was.
func (s *Store) Probe(ctx context.Context) error {
	if s.history.Restored() {
		return nil
	}
	return s.ledger.Probe(ctx)
}

// Events returns the events after sequence number since, oldest first, at most 1000 of them
// and about 1 MiB. An empty list means that there are no more.
func (s *Store) Events(ctx context.Context, since int64) ([]api.Event, error) {
	return s.ledger.Events(ctx, since)
}

// LastEvents returns the last n events after since, oldest first; fewer if they are long,
// as with Events.
func (s *Store) LastEvents(ctx context.Context, since int64, n int) ([]api.Event, error) {
	return s.ledger.LastEvents(ctx, since, n)
}

// NextCommit returns a channel that is closed at the first commit after the call. Call it
// before Events, and wait then, so that no event is missed.
func (s *Store) NextCommit() <-chan struct{} { return s.ledger.NextCommit() }

// VerifyAudit reads the trail as it is at the time of the call and returns how many events
// it has, or an error that names the first event that was changed or is missing. The trail
// alone does not show whether its end was cut off: the marks that hosts show do
// (ObserveMark).
func (s *Store) VerifyAudit(ctx context.Context) (int64, error) { return s.ledger.VerifyAudit(ctx) }

// LastAudit returns the result of the last VerifyAudit, and false if there was none.
func (s *Store) LastAudit() (ledger.AuditCheck, bool) { return s.ledger.LastAudit() }

// ViewOne reads the thing that ref names.
func ViewOne[T any](ctx context.Context, s *Store, k Kind, ref string, byID func(context.Context, ledger.Querier, string) (T, error)) (T, error) {
	return ledger.View(ctx, s.db.Read, func(q ledger.Querier) (T, error) {
		id, err := Resolve(ctx, q, k, ref)
		if err != nil {
			var none T
			return none, err
		}
		return byID(ctx, q, id)
	})
}
