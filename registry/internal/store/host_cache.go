// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// hostCache holds what changes with every report and is not worth a commit:
// when a host was last seen, by our clock, what its pools have free, how far its
// migrations are. It also has the rows of hosts as of the last commit, so that a
// report that says nothing new costs no look at the database.
type hostCache struct {
	mu   sync.Mutex
	seen map[string]*sighting
	// hostOf says on which host an open migration is that was reported.
	hostOf map[string]string
	// strays are the ids of the hosts that run an instance without having it, by its id.
	strays map[string][]string
	// storing are the hosts of which a report is on its way into the database; what is
	// there is closed when it is over.
	storing map[string]chan struct{}
}

const (
	// A host may have so many reports that say something new taken at once, and then so
	// many a second. Daemons report once a second at the most.
	reportsAtOnce    = 60
	reportsPerSecond = 2
)

// beginReport waits until no other report of the host is on its way into the database,
// so that one host has at most one of them in the line to the writer. End must be
// called.
func (m *hostCache) beginReport(ctx context.Context, id string) (end func(), err error) {
	for {
		m.mu.Lock()
		other := m.storing[id]
		if other == nil {
			mine := make(chan struct{})
			m.storing[id] = mine
			m.mu.Unlock()
			return func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				delete(m.storing, id)
				close(mine)
			}, nil
		}
		m.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another report of the host: %w", ctx.Err())
		}
	}
}

type sighting struct {
	row hostRow
	// at is zero while the host has not reported since the start.
	at    time.Time
	pools []api.Pool
	// poolsAt is when pools were told, poolsKept which of that is in the database.
	poolsAt, poolsKept time.Time
	// stored is the digest of the last whole report, the part of which that is worth it
	// is in the database; "" if that has to be written again.
	stored string
	// compared says that a report of this host was compared with our history since
	// the start: nothing that it was told speaks against this database.
	compared bool
	// mark is the last one that the host was told.
	mark api.RegistryMark
	// migrations are those that are open on it, as it last said, by id.
	migrations map[string]api.Migration
	// strays are the instances that run on it without being its own, by id.
	strays []string
}

// load is for the start: what is stored of every host.
func (m *hostCache) load(rows []hostRow) {
	m.seen, m.hostOf, m.strays = map[string]*sighting{}, map[string]string{}, map[string][]string{}
	m.storing = map[string]chan struct{}{}
	for _, h := range rows {
		m.seen[h.id] = &sighting{row: h}
	}
}

// see notes that a host was heard of, and returns its row and the last mark that
// it was told. A host that is not stored is not known here either.
func (m *hostCache) see(id string, at time.Time) (row hostRow, told api.RegistryMark, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.seen[id]
	if s == nil {
		return hostRow{}, api.RegistryMark{}, false
	}
	s.at = at
	return s.row, s.mark, true
}

// note remembers the part of a report that is not stored and says whether the
// database has the rest of it.
func (m *hostCache) note(in api.HostReport, digest string) (stored bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.seen[in.ID]
	if s == nil {
		return false
	}
	if in.Pools != nil {
		s.pools, s.poolsAt = in.Pools, s.at
	}
	return s.stored == digest
}

// has says whether the report with the digest is the last one of the host, and in
// the database.
func (m *hostCache) has(id, digest string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.seen[id]
	return s != nil && s.stored == digest
}

// compare notes that what a host was told before the start is known.
func (m *hostCache) compare(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.seen[id]; s != nil {
		s.compared = true
	}
}

func (m *hostCache) wasCompared(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.seen[id]
	return s != nil && s.compared
}

// store notes what the database has of a host now. The writer calls it, in the
// order of its commits.
func (m *hostCache) store(row hostRow, digest string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.seen[row.id]
	if s == nil {
		s = &sighting{}
		m.seen[row.id] = s
	}
	s.row, s.stored = row, digest
}

// forget is for a host that is not stored any more.
func (m *hostCache) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.seen[id]; s != nil {
		for migration := range s.migrations {
			delete(m.hostOf, migration)
		}
	}
	delete(m.seen, id)
}

// tell notes the mark that a host is told.
func (m *hostCache) tell(id string, mark api.RegistryMark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.seen[id]; s != nil {
		s.mark = mark
	}
}

func (m *hostCache) lastSeen(id string) (time.Time, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.seen[id]
	if s == nil || s.at.IsZero() {
		return time.Time{}, false
	}
	return s.at, true
}

// freshen puts what a host last said of its pools into pools.
func (m *hostCache) freshen(hostID string, p *api.Pool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.seen[hostID]
	if s == nil {
		return
	}
	for _, fresh := range s.pools {
		if fresh.Name == p.Name {
			p.CapacityBytes, p.FreeBytes, p.UpdatedAt = fresh.CapacityBytes, fresh.FreeBytes, s.poolsAt.UTC().Truncate(time.Microsecond)
		}
	}
}

// all returns a copy of what is known of every host that has reported.
func (m *hostCache) all() map[string]sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[string]sighting, len(m.seen))
	for id, s := range m.seen {
		if !s.at.IsZero() {
			out[id] = *s
		}
	}
	return out
}

// keptPools notes that what the hosts said of their pools, as of the sightings, is in
// the database.
func (m *hostCache) keptPools(ids []string, as map[string]sighting) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		if s := m.seen[id]; s != nil {
			s.poolsKept = as[id].poolsAt
		}
	}
}
