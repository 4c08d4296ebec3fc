// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// suspectAfter is how long a host may be silent. Daemons report every few
// seconds. A host that is silent is suspect and no more: what it holds stays held
// until an operator says that it is fenced.
const suspectAfter = 30 * time.Second

// upWithin is how long ago a host that is fenced may have reported for the
// operator to be asked whether it is the right one.
const upWithin = 15 * time.Second

// Hosts returns every host, by name.
func (s *Store) Hosts(ctx context.Context) ([]api.Host, error) {
	return ledger.ReadAll(ctx, s.db.Read, s.scanHost, hostQuery+" ORDER BY name")
}

// Host returns the host that ref names.
func (s *Store) Host(ctx context.Context, ref string) (api.Host, error) {
	return ViewOne(ctx, s, KindHost, ref, s.hostByID)
}

func (s *Store) hostByID(ctx context.Context, q ledger.Querier, id string) (api.Host, error) {
	h, err := s.scanHost(q.QueryRowContext(ctx, hostQuery+" WHERE id = ?", id))
	if err != nil {
		return api.Host{}, fmt.Errorf("read host %s: %w", id, err)
	}
	return h, nil
}

func (s *Store) scanHost(row ledger.Scanner) (api.Host, error) {
	h, err := scanHostRow(row)
	if err != nil {
		return api.Host{}, err
	}
	return s.describe(h), nil
}

// describe adds to what is stored of a host what is known in memory.
func (s *Store) describe(h hostRow) api.Host {
	last, now := h.lastSeen, s.now()
	if at, ok := s.hosts.lastSeen(h.id); ok {
		last = at
	}
	status := api.HostUp
	switch {
	case h.fenced:
		status = api.HostFenced
	case now.Sub(last) > suspectAfter:
		status = api.HostSuspect
	}
	seen := last.UTC().Truncate(time.Microsecond)
	return api.Host{
		ID: h.id, Name: h.name, Status: status, Epoch: h.epoch, Version: h.version,
		LastSeenAt: &seen, CreatedAt: h.created, Behind: h.behind,
	}
}
