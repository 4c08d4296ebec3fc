// SPDX-License-Identifier: Apache-2.0

// Package store has the registry's rules and data in one SQLite file: volumes, instances,
// attachments, migrations, and their locks. It does not know HTTP, libvirt, or the bytes of
// volumes. Package ledger makes each change durable, with its audit event and its answer.
//
// Every change is one transaction. A repeated request gets the same answer and is not carried out
// again. An error is an *api.Error if the caller can act on it.
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
	// postLimit bounds the events that hosts post, refusalLimit the audited refusals.
	postLimit, refusalLimit *ratelimit.Limit
	// reportLimit bounds the reports of a host that need a write to the database.
	reportLimit *ratelimit.Limit
	// changeBytes bounds the bytes that each host's changes add.
	changeBytes *ratelimit.Bytes
	// progress announces reported progress of migrations.
	progress    *ledger.Notifier
	onReadOnly  func(reason string)
	onDoubt     func(host string)
	sharedPools map[string][]string
	now         func() time.Time
}

// Close finishes the started changes, ends the writer, and closes the file. Later requests get
// registry_unavailable.
func (s *Store) Close() error {
	if err := errors.Join(s.ledger.Close(), s.db.Close()); err != nil {
		return fmt.Errorf("close registry: %w", err)
	}
	return nil
}

// MigratedFrom returns the path of the backup that Open made because the database had an older
// schema, "" if it made none.
func (s *Store) MigratedFrom() string { return s.db.MigratedFrom }

// Reader returns the database for reads as of the last commit.
func (s *Store) Reader() *sql.DB { return s.db.Read }

// Now returns the time of the registry's clock.
func (s *Store) Now() time.Time { return s.now() }

// InvalidateReports makes the store write each host's next report, even if it is the same as the
// last one.
func (s *Store) InvalidateReports(hostIDs ...string) { s.hosts.Invalidate(hostIDs...) }

// DeleteInBatches is ledger.Ledger.DeleteInBatches.
func (s *Store) DeleteInBatches(ctx context.Context, query string, args ...any) error {
	return s.ledger.DeleteInBatches(ctx, query, args...)
}

// Probe returns nil if the database accepts changes. It does not touch a restored database; use
// ReadOnly for that.
func (s *Store) Probe(ctx context.Context) error {
	if s.history.Restored() {
		return nil
	}
	return s.ledger.Probe(ctx)
}

// Events returns up to 1000 events, and about 1 MiB, after sequence number since, oldest first. An
// empty list means that there are no more.
func (s *Store) Events(ctx context.Context, since int64) ([]api.Event, error) {
	return s.ledger.Events(ctx, since)
}

// LastEvents returns the last n events after since, oldest first. It returns fewer if they exceed
// the size limit of Events.
func (s *Store) LastEvents(ctx context.Context, since int64, n int) ([]api.Event, error) {
	return s.ledger.LastEvents(ctx, since, n)
}

// NextCommit returns a channel that is closed at the first commit after the call. To miss no event,
// call it before Events and then wait.
func (s *Store) NextCommit() <-chan struct{} { return s.ledger.NextCommit() }

// VerifyAudit reads the trail as of the call. It returns the number of events, or an error that
// names the first changed or missing event. It cannot detect that the end of the trail was cut off;
// ObserveMark does, by the marks that hosts show.
func (s *Store) VerifyAudit(ctx context.Context) (int64, error) { return s.ledger.VerifyAudit(ctx) }

// LastAudit returns the result of the last VerifyAudit, false if there was none.
func (s *Store) LastAudit() (ledger.AuditCheck, bool) { return s.ledger.LastAudit() }

// ViewOne reads the object that ref names.
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
