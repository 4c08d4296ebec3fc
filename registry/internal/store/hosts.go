// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostcache"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// Hosts has the hosts, with their epochs and fences.
type Hosts struct {
	db    *DB
	trail *Trail
}

// All returns every host, by name.
func (s *Hosts) All(ctx context.Context) ([]api.Host, error) {
	return ledger.ReadAll(ctx, s.db.sqlite.Read, s.scan, hostQuery+" ORDER BY name")
}

// Get returns the host that ref names.
func (s *Hosts) Get(ctx context.Context, ref string) (api.Host, error) {
	return ViewOne(ctx, s.db, KindHost, ref, s.byID)
}

// Now returns the host with the id, from memory, as of the last answered commit; false if there is
// none.
func (s *Hosts) Now(id string) (host api.Host, found bool) {
	row, found := s.db.hosts.Row(id)
	if !found {
		return api.Host{}, false
	}
	return s.document(row), true
}

func (s *Hosts) byID(ctx context.Context, q ledger.Querier, id string) (api.Host, error) {
	h, err := s.scan(q.QueryRowContext(ctx, hostQuery+" WHERE id = ?", id))
	if err != nil {
		return api.Host{}, fmt.Errorf("read host %s: %w", id, err)
	}
	return h, nil
}

func (s *Hosts) scan(row ledger.Scanner) (api.Host, error) {
	h, err := scanHostRow(row)
	if err != nil {
		return api.Host{}, err
	}
	return s.document(h), nil
}

func (s *Hosts) document(h hostcache.Row) api.Host {
	last := h.LastSeen
	if at, ok := s.db.hosts.LastSeen(h.ID); ok {
		last = at
	}
	status := api.HostUp
	switch {
	case h.Fenced:
		status = api.HostFenced
	case s.db.isSuspect(h.ID, last):
		status = api.HostSuspect
	}
	seen := last.UTC().Truncate(time.Microsecond)
	return api.Host{
		ID: h.ID, Name: h.Name, Status: status, Epoch: h.Epoch, Version: h.Version,
		LastSeenAt: &seen, CreatedAt: h.Created, Behind: h.Behind,
	}
}

// Waits records that an admitted host waits for tasks; the wait counts as a report for LastSeen.
func (s *Hosts) Waits(hostID string) { s.db.hosts.Touch(hostID, s.db.now()) }

// BrokeOff records that the connection of a host's wait for tasks broke. It does not block.
func (s *Hosts) BrokeOff(hostID string) { s.db.hosts.NoteBreak(hostID, s.db.now()) }

// CheckHeard refuses a host that has not reported since the registry started: the host may not
// know of the restart. A database restored from a backup accepts no reports, so CheckHeard then
// allows every host.
func (s *Hosts) CheckHeard(host api.Host) error {
	if s.db.history.Restored() || s.db.hosts.WasCompared(host.ID) {
		return nil
	}
	return notHeard(host.Name)
}
