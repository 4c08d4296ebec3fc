// SPDX-License-Identifier: Apache-2.0

// Package hostcache keeps in memory the reported values that change too often to be stored each
// time, and remembers which reports are stored.
package hostcache

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// A Cache has the values that change with every report: the time when a host was last seen, free
// space of its pools, and progress of its migrations. It also has the rows of hosts as of the last
// commit, for unchanged reports. It is safe for concurrent use.
type Cache struct {
	mu              sync.Mutex
	byID            map[string]*State
	hostOfMigration map[string]string
	// foreign has, by instance id, the hosts that run an instance of another host.
	foreign   map[string][]string
	reporting map[string]chan struct{}
}

// BeginReport waits until no other report of the host is being stored: each host has at most one
// in the writer's queue. The caller must call end when the report is stored.
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

// Row is the stored row of a host.
type Row struct {
	ID, Name, Version, BootID string
	Epoch                     int64
	Fenced                    bool
	// Behind means that the host has not rejoined since a restore was accepted.
	Behind            bool
	LastSeen, Created time.Time
}

// State is the cached state of one host.
type State struct {
	Row Row
	// LastSeen is the time of the host's last report or wait for tasks; zero if there was none
	// since the start.
	LastSeen time.Time
	// brokeOff is the time when the connection of the host's wait for tasks broke; zero if the
	// host was seen since.
	brokeOff time.Time
	Pools    []api.Pool
	// PoolsAt is the time of the report of Pools. PoolsFlushed is the PoolsAt of the pools in the
	// database.
	PoolsAt, PoolsFlushed time.Time
	// withoutPools means that the last whole report had no pools: libvirt did not answer the host.
	withoutPools bool
	// digest is the digest of the last stored report; "" forces the next report to be stored.
	digest string
	// compared means that the host's mark was compared with the registry's history since the start.
	compared bool
	mark     api.RegistryMark
	// migrations has the last reported open migrations of the host, by id. The map is replaced,
	// never changed.
	migrations map[string]api.Migration
	foreign    []string
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

// Touch sets LastSeen of a stored host, and returns its row and its last mark (SetMark); false if
// the host is not stored.
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

// NoteBreak records that the host's connection broke while it waited for tasks.
func (c *Cache) NoteBreak(id string, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[id]; s != nil {
		s.brokeOff = at
	}
}

// BrokeOff returns the time of the last NoteBreak, false if the host was seen since.
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

// Update caches the values of a report that are not stored at once, and reports whether its other
// values, with this digest, are already stored.
func (c *Cache) Update(in api.HostReport, digest string) (stored bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[in.ID]
	if s == nil {
		return false
	}
	if s.withoutPools = in.Pools == nil; !s.withoutPools {
		s.Pools, s.PoolsAt = in.Pools, s.LastSeen
	}
	return s.digest == digest
}

// HasReport reports whether the last stored report of the host has this digest.
func (c *Cache) HasReport(id, digest string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	return s != nil && s.digest == digest
}

// SetCompared records that the host's mark was compared with the registry's history.
func (c *Cache) SetCompared(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[id]; s != nil {
		s.compared = true
	}
}

// WasCompared reports whether SetCompared was called for the host since the start.
func (c *Cache) WasCompared(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	return s != nil && s.compared
}

// Put sets a host's stored row and digest. The writer calls it in the order of its commits.
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

// SetMark records the newest mark given to the host, a position in the registry's history.
func (c *Cache) SetMark(id string, mark api.RegistryMark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[id]; s != nil {
		s.mark = mark
	}
}

// LastSeen returns the time when the host was last seen, false if it was not seen since the start.
func (c *Cache) LastSeen(id string) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	if s == nil || s.LastSeen.IsZero() {
		return time.Time{}, false
	}
	return s.LastSeen, true
}

// FillPool sets the last reported sizes and uses of a pool, and whether a later report lacked
// them; false if the host has not reported it since the start.
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
			p.Uses, p.Stale = slices.Clone(fresh.Uses), s.withoutPools
			return true
		}
	}
	return false
}

// Len returns the number of stored hosts.
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

// PoolsFlushed records that the pools of these hosts are stored as in the given states.
func (c *Cache) PoolsFlushed(ids []string, states map[string]State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if s := c.byID[id]; s != nil {
			s.PoolsFlushed = states[id].PoolsAt
		}
	}
}

// Invalidate makes the next report of these hosts be stored even if it is unchanged.
func (c *Cache) Invalidate(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if s := c.byID[id]; s != nil {
			s.digest = ""
		}
	}
}
