// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/hostcache"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/ratelimit"
	"github.com/volferry/volferry/registry/internal/schema"
)

// Housekeep writes down what is kept in memory between commits, forgets the
// answers to requests that nobody will send again, and keeps the
// database's log short. It is for a task that calls it now and then, and once at
// the end. A read-only store is left as it is.
func (s *Store) Housekeep(ctx context.Context) error {
	if s.history.Restored() {
		return nil
	}
	if err := s.flushHosts(ctx); err != nil {
		return err
	}
	if err := s.ledger.ExpireAnswers(ctx); err != nil {
		return err
	}
	if err := s.dropFinished(ctx); err != nil {
		return err
	}
	return s.ledger.Checkpoint(ctx)
}

// flushAtOnce is how many hosts are written down in one transaction, which
// everybody waits for.
const flushAtOnce = 200

func (s *Store) flushHosts(ctx context.Context) error {
	states := s.hosts.Snapshot()
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(states)), flushAtOnce) {
		err := s.ledger.Submit(ctx, func(ctx context.Context, tx *ledger.Tx) error {
			s.cache.hosts.invalidate()
			for _, id := range ids {
				if err := flushHost(ctx, tx, id, states[id]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		s.hosts.PoolsFlushed(ids, states)
	}
	return nil
}

func flushHost(ctx context.Context, tx *ledger.Tx, hostID string, h hostcache.State) error {
	if _, err := tx.ExecContext(ctx, "UPDATE hosts SET last_seen_us = ? WHERE id = ?", h.LastSeen.UnixMicro(), hostID); err != nil {
		return fmt.Errorf("flush host: %w", err)
	}
	if h.PoolsFlushed.Equal(h.PoolsAt) {
		return nil
	}
	for _, p := range h.Pools {
		if _, err := tx.ExecContext(ctx, "UPDATE pools SET capacity_bytes = ?, free_bytes = ?, updated_us = ? WHERE host_id = ? AND name = ?",
			p.CapacityBytes, p.FreeBytes, h.PoolsAt.UnixMicro(), hostID, p.Name); err != nil {
			return fmt.Errorf("flush pool: %w", err)
		}
	}
	return nil
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
	db, err := sqlitedb.Open(ctx, path, schema.Versions())
	if err != nil {
		return nil, fmt.Errorf("open registry: %w", err)
	}
	s := &Store{
		db: db, cache: newRowCache(), progress: ledger.NewNotifier(), onReadOnly: o.OnReadOnly, onDoubt: o.OnDoubt, sharedPools: o.SharedPools, now: time.Now,
		postLimit: newPostLimit(), refusalLimit: newRefusalLimit(), reportLimit: ratelimit.New(reportsPerSecond, reportsAtOnce),
	}
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("open registry: %w", err), db.Close())
	}
	if err := s.unshare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open registry: %w", err), s.Close())
	}
	return s, nil
}

// start reads what is kept in memory, and begins to take changes.
func (s *Store) start(ctx context.Context, o Options) error {
	if err := makeMarkKey(ctx, s.db); err != nil {
		return err
	}
	if _, err := ledger.View(ctx, s.db.Read, func(q ledger.Querier) (none struct{}, err error) {
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
	s.ledger, err = ledger.Start(ctx, s.db, ledger.Options{
		OnCommit: o.OnCommit, OnTrail: func(end ledger.End) { s.history.Advance(end.Seq, end.Hash) }, FaultPoint: o.FaultPoint, Cache: s.cache,
		Now: func() time.Time { return s.now() },
	})
	return err
}
