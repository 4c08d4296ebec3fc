// SPDX-License-Identifier: Apache-2.0

// Package hostcache keeps in memory the parts of hosts' reports that are not worth a
// commit, and knows which part of each report is stored. It does not know the database or
// the rules: package store does.
package hostcache

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// Cache keeps what changes with every report and is not worth a commit: when a host was
// last seen, by our clock, what its pools have free, and how far its migrations are
// (progress.go). It also has the rows of hosts as of the last commit, so that a report
// without news does not read the database.
type Cache struct {
	mu   sync.Mutex
	byID map[string]*State
	// hostOfMigration is the host that reports an open migration, by the migration's id.
	hostOfMigration map[string]string
	// foreign are the hosts that run an instance which is not theirs, by the instance's id.
	foreign map[string][]string
	// reporting are the hosts of which a report is being stored. The channel is closed
	// when it is stored.
	reporting map[string]chan struct{}
}

// BeginReport waits until no other report of the host is being stored, so that each host
// has at most one report in the writer's queue. Call end when it is stored.
func (c *Cache) BeginReport(ctx context.Context, id string) (end func(), err error) {
	for {
		c.mu.Lock()
		other := c.reporting[id]
		if other == nil {
			mine := make(chan struct{})
			c.reporting[id] = mine
			c.mu.Unlock()
			return func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.reporting, id)
				close(mine)
			}, nil
		}
		c.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another report of the host: %w", ctx.Err())
		}
	}
}

// Row is a host as it is stored.
type Row struct {
	ID, Name, Version, BootID string
	Epoch                     int64
	Fenced                    bool
	// Behind says that the host has not come back since a restore was accepted.
	Behind            bool
	LastSeen, Created time.Time
}

// State is what the cache has of one host.
type State struct {
	Row Row
	// LastSeen is when the host last reported or began to wait for tasks; zero while it has not
	// since the start.
	LastSeen time.Time
	// brokeOff is when the connection broke on which it waited for tasks; zero if it was seen
	// since.
	brokeOff time.Time
	Pools    []api.Pool
	// PoolsAt is when pools were reported. PoolsFlushed is the PoolsAt of the pools in the
	// database.
	PoolsAt, PoolsFlushed time.Time
	// digest is the digest of the last whole report, once that is stored; "" if the next
	// report has to be stored whatever it says.
	digest string
	// compared says that a report of this host was compared with our history since
	// the start: nothing that it was told speaks against this database.
	compared bool
	// mark is the last one that the host was told.
	mark api.RegistryMark
	// migrations are the open migrations of the host, as it last reported them, by id.
	migrations map[string]api.Migration
	// foreign are the ids of the instances that run on the host and are not its own.
	foreign []string
}

// New returns a cache of the stored hosts.
func New(rows []Row) *Cache {
	c := &Cache{
		byID: map[string]*State{}, hostOfMigration: map[string]string{}, foreign: map[string][]string{}, reporting: map[string]chan struct{}{},
	}
	for _, h := range rows {
		c.byID[h.ID] = &State{Row: h}
	}
	return c
}

// Touch notes that a host was seen now, and returns its row and the last mark that it was
// given. A host that is not stored is not in the cache.
func (c *Cache) Touch(id string, at time.Time) (row Row, mark api.RegistryMark, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	if s == nil {
		return Row{}, api.RegistryMark{}, false
	}
	s.LastSeen, s.brokeOff = at, time.Time{}
	return s.Row, s.mark, true
}

// NoteBreak notes that the connection broke on which a host waited for tasks.
func (c *Cache) NoteBreak(id string, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[id]; s != nil {
		s.brokeOff = at
	}
}

// BrokeOff returns when NoteBreak was called for a host, and false if it was seen since.
func (c *Cache) BrokeOff(id string) (at time.Time, broke bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	if s == nil || s.brokeOff.IsZero() {
		return time.Time{}, false
	}
	return s.brokeOff, true
}

// Row returns a host as of the last commit, false if there is none.
func (c *Cache) Row(id string) (row Row, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	if s == nil {
		return Row{}, false
	}
	return s.Row, true
}

// Update keeps the part of a report that is not stored, and reports whether the other part is
// stored already.
func (c *Cache) Update(in api.HostReport, digest string) (stored bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[in.ID]
	if s == nil {
		return false
	}
	if in.Pools != nil {
		s.Pools, s.PoolsAt = in.Pools, s.LastSeen
	}
	return s.digest == digest
}

// HasReport reports whether the last report of the host has this digest and is stored.
func (c *Cache) HasReport(id, digest string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	return s != nil && s.digest == digest
}

// SetCompared notes that the mark of a host was compared with the registry's history.
func (c *Cache) SetCompared(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[id]; s != nil {
		s.compared = true
	}
}

// WasCompared reports whether SetCompared was called for a host since the start.
func (c *Cache) WasCompared(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	return s != nil && s.compared
}

// Put notes what is now stored of a host. The writer calls it in the order of its commits.
func (c *Cache) Put(row Row, digest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[row.ID]
	if s == nil {
		s = &State{}
		c.byID[row.ID] = s
	}
	s.Row, s.digest = row, digest
}

// Remove drops a host that is no longer stored.
func (c *Cache) Remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[id]; s != nil {
		for migration := range s.migrations {
			delete(c.hostOfMigration, migration)
		}
	}
	delete(c.byID, id)
}

// SetMark notes the mark that a host is given.
func (c *Cache) SetMark(id string, mark api.RegistryMark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[id]; s != nil {
		s.mark = mark
	}
}

// LastSeen returns when a host was last seen, and false if it was not since the start.
func (c *Cache) LastSeen(id string) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	if s == nil || s.LastSeen.IsZero() {
		return time.Time{}, false
	}
	return s.LastSeen, true
}

// FillPool puts into a pool the sizes and uses that its host last reported. It returns false if the
// host has not reported the pool since the start.
func (c *Cache) FillPool(hostID string, p *api.Pool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[hostID]
	if s == nil {
		return false
	}
	for _, fresh := range s.Pools {
		if fresh.Name == p.Name {
			p.CapacityBytes, p.FreeBytes, p.UpdatedAt = fresh.CapacityBytes, fresh.FreeBytes, s.PoolsAt.UTC().Truncate(time.Microsecond)
			p.Uses = slices.Clone(fresh.Uses)
			return true
		}
	}
	return false
}

// Len returns how many hosts are stored.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID)
}

// Snapshot returns a copy of the state of every host that was seen since the start.
func (c *Cache) Snapshot() map[string]State {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]State, len(c.byID))
	for id, s := range c.byID {
		if !s.LastSeen.IsZero() {
			out[id] = *s
		}
	}
	return out
}

// PoolsFlushed notes that the pools of these hosts are stored as they are in the states as.
func (c *Cache) PoolsFlushed(ids []string, as map[string]State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if s := c.byID[id]; s != nil {
			s.PoolsFlushed = as[id].PoolsAt
		}
	}
}

// Invalidate has the next report of these hosts stored, whether or not it has news.
func (c *Cache) Invalidate(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if s := c.byID[id]; s != nil {
			s.digest = ""
		}
	}
}
