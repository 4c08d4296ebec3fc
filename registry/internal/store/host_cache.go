// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// hostCache holds what changes with every report and is not worth a commit: when a host
// was last seen, by our clock, what its pools have free, and how far its migrations are
// (progress_cache.go). It also has the rows of hosts as of the last commit, so a report
// that says nothing new does not read the database.
type hostCache struct {
	mu   sync.Mutex
	byID map[string]*hostState
	// hostOfMigration is the host that reports an open migration, by the migration's id.
	hostOfMigration map[string]string
	// foreign are the hosts that run an instance which is not theirs, by the instance's id.
	foreign map[string][]string
	// reporting are the hosts of which a report is being stored. The channel is closed
	// when it is stored.
	reporting map[string]chan struct{}
}

const (
	// A host may have so many reports that say something new taken at once, and then so
	// many a second. Daemons report once a second at the most.
	reportsAtOnce    = 60
	reportsPerSecond = 2
)

// beginReport waits until no other report of the host is being stored, so that one host
// has at most one of them in the writer's queue. End must be called.
func (c *hostCache) beginReport(ctx context.Context, id string) (end func(), err error) {
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

// hostState is what is in memory of one host.
type hostState struct {
	row hostRow
	// at is zero while the host has not reported since the start.
	at    time.Time
	pools []api.Pool
	// poolsAt is when pools were reported, poolsFlushed the poolsAt of what is in the
	// database.
	poolsAt, poolsFlushed time.Time
	// digest is that of the last whole report, once it is stored; "" if the next report
	// has to be stored whatever it says.
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

// load fills the cache at the start with what is stored of every host.
func (c *hostCache) load(rows []hostRow) {
	c.byID, c.hostOfMigration, c.foreign = map[string]*hostState{}, map[string]string{}, map[string][]string{}
	c.reporting = map[string]chan struct{}{}
	for _, h := range rows {
		c.byID[h.id] = &hostState{row: h}
	}
}

// touch notes when a host was last seen, and returns its row and the last mark that it
// was told. A host that is not stored is not in the cache.
func (c *hostCache) touch(id string, at time.Time) (row hostRow, mark api.RegistryMark, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	if s == nil {
		return hostRow{}, api.RegistryMark{}, false
	}
	s.at = at
	return s.row, s.mark, true
}

// update keeps the part of a report that is not stored, and says whether the rest of it
// is stored already.
func (c *hostCache) update(in api.HostReport, digest string) (stored bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[in.ID]
	if s == nil {
		return false
	}
	if in.Pools != nil {
		s.pools, s.poolsAt = in.Pools, s.at
	}
	return s.digest == digest
}

// hasReport says whether the digest is that of the host's last report, and that is stored.
func (c *hostCache) hasReport(id, digest string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	return s != nil && s.digest == digest
}

// setCompared notes that the mark of a host was compared with the registry's history.
func (c *hostCache) setCompared(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[id]; s != nil {
		s.compared = true
	}
}

func (c *hostCache) wasCompared(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	return s != nil && s.compared
}

// put notes what is stored of a host now. The writer calls it in the order of its
// commits.
func (c *hostCache) put(row hostRow, digest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[row.id]
	if s == nil {
		s = &hostState{}
		c.byID[row.id] = s
	}
	s.row, s.digest = row, digest
}

// remove drops a host that is not stored any more.
func (c *hostCache) remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[id]; s != nil {
		for migration := range s.migrations {
			delete(c.hostOfMigration, migration)
		}
	}
	delete(c.byID, id)
}

// setMark notes the mark that a host is told.
func (c *hostCache) setMark(id string, mark api.RegistryMark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[id]; s != nil {
		s.mark = mark
	}
}

func (c *hostCache) lastSeen(id string) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	if s == nil || s.at.IsZero() {
		return time.Time{}, false
	}
	return s.at, true
}

// fillPool puts the sizes that a host last reported into a pool of it.
func (c *hostCache) fillPool(hostID string, p *api.Pool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[hostID]
	if s == nil {
		return
	}
	for _, fresh := range s.pools {
		if fresh.Name == p.Name {
			p.CapacityBytes, p.FreeBytes, p.UpdatedAt = fresh.CapacityBytes, fresh.FreeBytes, s.poolsAt.UTC().Truncate(time.Microsecond)
		}
	}
}

// snapshot returns a copy of the state of every host that has reported since the start.
func (c *hostCache) snapshot() map[string]hostState {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]hostState, len(c.byID))
	for id, s := range c.byID {
		if !s.at.IsZero() {
			out[id] = *s
		}
	}
	return out
}

// poolsFlushed notes that the pools of these hosts are stored as they are in as.
func (c *hostCache) poolsFlushed(ids []string, as map[string]hostState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if s := c.byID[id]; s != nil {
			s.poolsFlushed = as[id].poolsAt
		}
	}
}
