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

// Housekeep stores the state kept in memory, deletes expired answers, and shortens the database's
// log. Call it periodically, and once before Close. A read-only store ignores it.
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

// flushAtOnce bounds the hosts in one transaction; every other change waits for it.
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

// Options are the callbacks and settings of a Store.
type Options struct {
	// OnCommit, if not nil, is called after every commit with its number of changes and its
	// duration. It must not block.
	OnCommit func(changes int, took time.Duration)
	// GatherFor bounds how long a commit waits for as many changes as the last commit had; 0
	// disables the wait.
	GatherFor time.Duration
	// OnReadOnly, if not nil, is called for every host that proves that the database was restored
	// from a backup, with the reason that ReadOnly returns. It must not block.
	OnReadOnly func(reason string)
	// OnDoubt, if not nil, is called with the name of every host that begins to show a mark which
	// this registry has neither given out nor signed. It must not block.
	OnDoubt func(host string)
	// SharedPools, if not nil, has the site's shared pools with the names or ids of their hosts;
	// nil hosts allow every host that reports the pool as shared. The store ignores other reports
	// of sharing: they would give a host access to other hosts' volumes in a pool of that name. If
	// SharedPools is nil, the store believes every host.
	SharedPools map[string][]string
	// FaultPoint, if not nil, is called where a test may stop the registry: with
	// EVENT.before_commit when an audit event is written but not stored, and with
	// EVENT.after_commit when it is on stable storage but not answered. EVENT is the name of the
	// event and, for a change of state, the new state. FaultPoint need not return.
	FaultPoint func(name string)
}

// Open opens the registry's database at path, and creates it if it is missing. It returns the
// errors of sqlitedb.Open.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	db, err := sqlitedb.Open(ctx, path, schema.Versions())
	if err != nil {
		return nil, fmt.Errorf("open registry: %w", err)
	}
	s := &Store{
		db: db, cache: newRowCache(), progress: ledger.NewNotifier(), onReadOnly: o.OnReadOnly, onDoubt: o.OnDoubt, sharedPools: o.SharedPools, now: time.Now,
		postLimit: newPostLimit(), refusalLimit: newRefusalLimit(), reportLimit: ratelimit.New(reportsPerSecond, reportsAtOnce),
		changeBytes: ratelimit.NewBytes(changeBytesPerSecond, changeBytesAtOnce),
	}
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("open registry: %w", err), db.Close())
	}
	if err := s.unshare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open registry: %w", err), s.Close())
	}
	return s, nil
}

// start reads the state that is kept in memory, and starts the writer.
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
		OnCommit: o.OnCommit, GatherFor: o.GatherFor, OnTrail: func(end ledger.End) { s.history.Advance(end.Seq, end.Hash) }, FaultPoint: o.FaultPoint, Cache: s.cache,
		Now: func() time.Time { return s.now() },
	})
	return err
}
