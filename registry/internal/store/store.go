// SPDX-License-Identifier: Apache-2.0

// Package store has the registry's rules and data in one SQLite file: volumes, instances,
// attachments, migrations, and their locks. It does not know HTTP, libvirt, or the bytes of
// volumes. Package ledger makes each change durable, with its audit event and its answer.
//
// Every change is one transaction. A repeated request gets the same answer. An error is an
// *api.Error if the caller can act on it.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/hostcache"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/ratelimit"
	"github.com/volferry/volferry/registry/internal/schema"
)

// Store is an open registry: its database, with a field for each kind of object. It is safe for
// concurrent use.
type Store struct {
	*DB
	Volumes     *Volumes
	Retypes     *Retypes
	Attachments *Attachments
	Instances   *Instances
	Migrations  *Migrations
	Progress    *Progress
	Hosts       *Hosts
	Reports     *Reports
	Pools       *Pools
	Types       *Types
	Policies    *Policies
	Trail       *Trail
	Marks       *Marks
}

// Housekeep stores the state kept in memory, deletes expired answers, and shortens the database's
// log. Call it periodically, and once before Close.
func (s *Store) Housekeep(ctx context.Context) error {
	if s.history.Restored() {
		return nil
	}
	if err := s.Hosts.flush(ctx); err != nil {
		return err
	}
	if err := s.ledger.ExpireAnswers(ctx); err != nil {
		return err
	}
	if err := s.Progress.dropFinished(ctx); err != nil {
		return err
	}
	return s.ledger.Checkpoint(ctx)
}

// Options are the callbacks and settings of a Store.
type Options struct {
	// OnCommit and GatherFor are as in ledger.Options.
	OnCommit  func(changes int, took time.Duration)
	GatherFor time.Duration
	// OnReadOnly, if not nil, is called with ReadOnly's reason for every host that proves a
	// restore from a backup. It must not block.
	OnReadOnly func(reason string)
	// OnDoubt, if not nil, is called with the name of every host that begins to show a mark which
	// this registry has neither issued nor signed. It must not block.
	OnDoubt func(host string)
	// SharedPools, if not nil, has the site's shared pools with the names or ids of their hosts;
	// nil hosts allow every host that reports the pool as shared. The store ignores other reports
	// of sharing, which would give a host access to other hosts' volumes in a pool of that name.
	// If SharedPools is nil, the store believes every host.
	SharedPools map[string][]string
	// FaultPoint is as in ledger.Options.
	FaultPoint func(name string)
}

// Open opens the registry's database at path, and creates it if it is missing. It returns the
// errors of sqlitedb.Open.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	file, err := sqlitedb.Open(ctx, path, schema.Versions())
	if err != nil {
		return nil, fmt.Errorf("open registry: %w", err)
	}
	db := &DB{
		sqlite: file, cache: newRowCache(), now: time.Now,
		changeBytes: ratelimit.NewBytes(changeBytesPerSecond, changeBytesAtOnce),
	}
	if err := db.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("open registry: %w", err), file.Close())
	}
	s := partsOf(db, o)
	if err := s.Pools.unshare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open registry: %w", err), s.Close())
	}
	return s, nil
}

func partsOf(db *DB, o Options) *Store {
	s := &Store{
		DB: db, Volumes: &Volumes{db}, Instances: &Instances{db}, Types: &Types{db}, Policies: &Policies{db},
		Pools:    &Pools{db: db, shared: o.SharedPools},
		Trail:    &Trail{db: db, postLimit: newPostLimit(), refusalLimit: newRefusalLimit()},
		Marks:    &Marks{db: db, onReadOnly: o.OnReadOnly, onDoubt: o.OnDoubt},
		Progress: &Progress{db: db, changed: ledger.NewNotifier()},
	}
	s.Retypes = &Retypes{db: db, pools: s.Pools}
	s.Attachments, s.Migrations, s.Hosts = &Attachments{db, s.Trail}, &Migrations{db, s.Trail}, &Hosts{db, s.Trail}
	s.Reports = &Reports{
		db: db, hosts: s.Hosts, pools: s.Pools, marks: s.Marks, progress: s.Progress, limit: ratelimit.New(reportsPerSecond, reportsAtOnce),
	}
	return s
}

func (s *DB) start(ctx context.Context, o Options) error {
	if err := makeMarkKey(ctx, s.sqlite); err != nil {
		return err
	}
	if _, err := ledger.View(ctx, s.sqlite.Read, func(q ledger.Querier) (none struct{}, err error) {
		hosts, err := ledger.QueryAll(ctx, q, scanHostRow, hostQuery)
		if err != nil {
			return none, err
		}
		s.hosts = hostcache.New(hosts)
		end, err := ledger.ReadEnd(ctx, q)
		if err != nil {
			return none, err
		}
		s.history, err = readHistory(ctx, q, end)
		return none, err
	}); err != nil {
		return err
	}
	var err error
	s.ledger, err = ledger.Start(ctx, s.sqlite, ledger.Options{
		OnCommit: o.OnCommit, GatherFor: o.GatherFor, OnTrail: func(end ledger.End) { s.history.Advance(end.Seq, end.Hash) }, FaultPoint: o.FaultPoint, Cache: s.cache,
		Now: func() time.Time { return s.now() },
	})
	return err
}
