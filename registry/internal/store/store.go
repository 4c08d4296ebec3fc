// SPDX-License-Identifier: Apache-2.0

// Package store holds the registry's truth: who may use what, in one SQLite
// file. It owns the rules of volumes, instances, attachments and migrations,
// their locks and their audit trail. It knows nothing of HTTP, of libvirt, or
// of the bytes of volumes.
//
// Every change is one transaction with its audit event and its answer, so that
// a crash leaves all of it or nothing, and a repeated request is answered and
// not repeated. Every error that a caller can do something about is an
// *api.Error.
package store

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
)

//go:embed schema/1.sql
var schema1 string

//go:embed schema/2.sql
var schema2 string

//go:embed schema/3.sql
var schema3 string

//go:embed schema/4.sql
var schema4 string

//go:embed schema/5.sql
var schema5 string

//go:embed schema/6.sql
var schema6 string

//go:embed schema/7.sql
var schema7 string

//go:embed schema/8.sql
var schema8 string

//go:embed schema/9.sql
var schema9 string

//go:embed schema/10.sql
var schema10 string

var schema = []string{schema1, schema2, schema3, schema4, schema5, schema6, schema7, schema8, schema9, schema10}

// Store is an open registry. It is safe for concurrent use.
type Store struct {
	db     *sqlitedb.DB
	writer *writer
	folder *folder
	hosts  hostMemory
	marks  marks
	// posts bounds the events that hosts post, refusals what is audited of calls that
	// were refused.
	posts, refusals *rates
	// wholeReports bounds the reports of a host that the database has to take.
	wholeReports *rates
	// news is of commits, progress of what hosts say of their migrations.
	news, progress news
	lastAudit      atomic.Pointer[AuditCheck]
	onReadOnly     func(reason string)
	onDoubt        func(host string)
	faultPoint     func(name string)
	sharedPools    map[string][]string
	now            func() time.Time
}

// Options are what a Store tells of itself.
type Options struct {
	// OnCommit, where not nil, is told of every commit: how many changes it
	// carried, and how long it took. It must not block.
	OnCommit func(changes int, took time.Duration)
	// OnReadOnly, where not nil, is told for every host that proves that the
	// database was restored from a backup what ReadOnly says then. It must not
	// block.
	OnReadOnly func(reason string)
	// OnDoubt, where not nil, is told the name of every host that begins to show a mark
	// which this registry has neither given out nor signed. It must not block.
	OnDoubt func(host string)
	// SharedPools, where not nil, are the pools that hosts share, with the names or ids
	// of these hosts; nil hosts are all that say so. A host that
	// reports another one as shared is not believed: it would reach what is in the
	// pool of that name on other hosts. Nil believes every host.
	SharedPools map[string][]string
	// FaultPoint, where not nil, is called where a test may want the registry to end:
	// with EVENT.before_commit when an event of the audit trail is written and not yet
	// stored, and with EVENT.after_commit when it is on stable storage and nobody was
	// told. EVENT is what happened and, of a change of state, to which. It may not
	// return.
	FaultPoint func(name string)
}

// Open opens the registry at path, creating it if it is missing. The errors
// are those of sqlitedb.Open.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	db, err := sqlitedb.Open(ctx, path, schema)
	if err != nil {
		return nil, fmt.Errorf("open registry: %w", err)
	}
	s := &Store{
		db: db, onReadOnly: o.OnReadOnly, onDoubt: o.OnDoubt, faultPoint: o.FaultPoint, sharedPools: o.SharedPools, now: time.Now,
		posts: newPostRates(), refusals: newRefusalRates(), wholeReports: newRates(reportsPerSecond, reportsAtOnce),
	}
	s.news.init()
	s.progress.init()
	if err := makeMarkKey(ctx, db); err != nil {
		return nil, errors.Join(fmt.Errorf("open registry: %w", err), db.Close())
	}
	end, err := s.load(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open registry: %w", err), db.Close())
	}
	log, err := db.NewFolder(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open registry: %w", err), db.Close())
	}
	s.writer = startWriter(db.Write, end, o.OnCommit, s.marks.advance, s.news.announce)
	s.folder = startFolder(log, s.writer, foldAt)
	if err := s.unshare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open registry: %w", err), s.Close())
	}
	if err := s.withdrawLeft(ctx, "volferry-registry"); err != nil {
		return nil, errors.Join(fmt.Errorf("open registry: %w", err), s.Close())
	}
	return s, nil
}

// load reads what is kept in memory from the start, and returns where the audit
// trail ends.
func (s *Store) load(ctx context.Context) (*trailEnd, error) {
	return view(ctx, s, func(q querier) (*trailEnd, error) {
		hosts, err := queryAll(ctx, q, scanHostRow, hostQuery)
		if err != nil {
			return nil, err
		}
		s.hosts.load(hosts)
		end, err := readTrailEnd(ctx, q)
		if err != nil {
			return nil, err
		}
		return end, s.marks.load(ctx, q, *end)
	})
}

// Close ends the writer, which first finishes what it has begun, and closes
// the file. Requests that come later are refused with registry_unavailable.
func (s *Store) Close() error {
	err := s.folder.stop()
	s.writer.stop()
	if err := errors.Join(err, s.db.Close()); err != nil {
		return fmt.Errorf("close registry: %w", err)
	}
	return nil
}

// querier is what reads: the read pool, or the transaction of a change.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// scanner is a row, of one or of many.
type scanner interface{ Scan(dest ...any) error }

// view reads with several queries from one state of the database.
func view[T any](ctx context.Context, s *Store, read func(querier) (T, error)) (out T, err error) {
	tx, err := s.db.Read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return out, fmt.Errorf("begin to read: %w", err)
	}
	// There is nothing to keep, and an error that matters came earlier.
	defer func() { _ = tx.Rollback() }()
	out, err = read(tx)
	return out, unreadable(err)
}

// unreadable says to a caller that the database cannot be read, where that is
// what err means.
func unreadable(err error) error {
	if sqlitedb.StorageFailed(err) {
		return api.Errorf(api.CodeRegistryUnavailable, "the registry cannot read its database: %v", err)
	}
	return err
}

// viewOne reads the thing that ref names.
func viewOne[T any](ctx context.Context, s *Store, k kind, ref string, byID func(context.Context, querier, string) (T, error)) (T, error) {
	return view(ctx, s, func(q querier) (T, error) {
		id, err := resolve(ctx, q, k, ref)
		if err != nil {
			var none T
			return none, err
		}
		return byID(ctx, q, id)
	})
}

// eachRow calls do with every row of a query, until it says that it wants no more.
// Nothing of the rows is kept.
func eachRow(ctx context.Context, q querier, do func(scanner) (more bool, err error), query string, args ...any) (err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("query: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		more, err := do(rows)
		if err != nil {
			return fmt.Errorf("scan row: %w", err)
		}
		if !more {
			return nil
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	return nil
}

// queryAll returns what scan makes of every row; an empty list, not nil, of
// none.
func queryAll[T any](ctx context.Context, q querier, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	all := []T{}
	err := eachRow(ctx, q, func(row scanner) (more bool, err error) {
		v, err := scan(row)
		all = append(all, v)
		return true, err
	}, query, args...)
	if err != nil {
		return nil, err
	}
	return all, nil
}

// readAll is queryAll for a read of one query.
func readAll[T any](ctx context.Context, s *Store, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	all, err := queryAll(ctx, s.db.Read, scan, query, args...)
	return all, unreadable(err)
}

func scanString(row scanner) (string, error) {
	var v string
	err := row.Scan(&v)
	return v, err
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// news wakes those who follow the audit trail.
type news struct {
	mu   sync.Mutex
	next chan struct{}
}

func (n *news) init() { n.next = make(chan struct{}) }

// wait returns a channel that is closed at the next commit.
func (n *news) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.next
}

func (n *news) announce() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.next)
	n.next = make(chan struct{})
}
