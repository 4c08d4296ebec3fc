// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
)

// The statuses of a host. A host that is silent is suspect and no more: what
// it holds stays held until an operator says that it is fenced.
const (
	HostUp      = "up"
	HostSuspect = "suspect"
)

// suspectAfter is how long a host may be silent. Daemons report every few
// seconds.
const suspectAfter = 30 * time.Second

// hostMemory holds what changes with every report and is not worth a commit:
// when a host was last seen, by our clock, and what its pools have free.
type hostMemory struct {
	mu   sync.Mutex
	seen map[string]*sighting
}

type sighting struct {
	at    time.Time
	pools []api.Pool
	// stored is the digest of the part of the report that is in the database;
	// "" if that has to be written again.
	stored string
}

func (m *hostMemory) init() { m.seen = map[string]*sighting{} }

// note remembers a report and says whether the database has the rest of it.
func (m *hostMemory) note(in api.HostReport, digest string, at time.Time) (stored bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.seen[in.ID]
	if s == nil {
		s = &sighting{}
		m.seen[in.ID] = s
	}
	s.at = at
	if in.Pools != nil {
		s.pools = in.Pools
	}
	return s.stored == digest
}

// setStored notes what the database has of a host now.
func (m *hostMemory) setStored(id, digest string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.seen[id]; s != nil {
		s.stored = digest
	}
}

func (m *hostMemory) lastSeen(id string) (time.Time, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.seen[id]
	if s == nil {
		return time.Time{}, false
	}
	return s.at, true
}

// freshen puts what a host last said of its pools into pools.
func (m *hostMemory) freshen(hostID string, p *api.Pool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.seen[hostID]
	if s == nil {
		return
	}
	for _, fresh := range s.pools {
		if fresh.Name == p.Name {
			p.CapacityBytes, p.FreeBytes, p.UpdatedAt = fresh.CapacityBytes, fresh.FreeBytes, s.at
		}
	}
}

// Report takes what a daemon says of its host. A host that is new gets epoch
// 1. Pools that are nil are not known to the daemon now: what it said last
// stands. Reports carry no op id: only the last one counts.
func (s *Store) Report(ctx context.Context, call Call, in api.HostReport) (api.Host, error) {
	if err := checkReport(in); err != nil {
		return api.Host{}, err
	}
	digest, err := reportDigest(in)
	if err != nil {
		return api.Host{}, err
	}
	now := s.now().UTC().Truncate(time.Microsecond)
	if s.hosts.note(in, digest, now) {
		return s.Host(ctx, in.ID)
	}
	call.Key = ""
	host, err := mutate(ctx, s, call, "host.report", in, func(ctx context.Context, tx *changeTx) (api.Host, error) {
		if err := tx.storeReport(ctx, in); err != nil {
			return api.Host{}, err
		}
		return s.hostByID(ctx, tx, in.ID)
	})
	if err != nil {
		return api.Host{}, err
	}
	s.hosts.setStored(in.ID, digest)
	return host, nil
}

func checkReport(in api.HostReport) error {
	if err := checkID("host id", in.ID); err != nil {
		return err
	}
	if err := checkName("host name", in.Name); err != nil {
		return err
	}
	if err := cmp.Or(checkText("version", in.Version), checkText("boot id", in.BootID)); err != nil {
		return err
	}
	for i, p := range in.Pools {
		if err := cmp.Or(checkRequired("pool name", p.Name), checkText("pool type", p.Type), checkPrintable("pool path", p.Path)); err != nil {
			return err
		}
		if p.CapacityBytes < 0 || p.FreeBytes < 0 {
			return invalid("the pool %s has a negative size", p.Name)
		}
		if slices.ContainsFunc(in.Pools[:i], func(q api.Pool) bool { return q.Name == p.Name }) {
			return invalid("the pool %s is reported twice", p.Name)
		}
	}
	for _, i := range in.Instances {
		if err := cmp.Or(checkID("instance id", i.ID), checkInstanceState(i.State)); err != nil {
			return err
		}
	}
	return nil
}

// reportDigest is over the part of a report that the database keeps.
func reportDigest(in api.HostReport) (string, error) {
	in.Pools = slices.Clone(in.Pools)
	for i := range in.Pools {
		in.Pools[i].CapacityBytes, in.Pools[i].FreeBytes, in.Pools[i].UpdatedAt = 0, 0, time.Time{}
	}
	b, err := json.Marshal(in)
	if err != nil {
		return "", fmt.Errorf("encode report: %w", err)
	}
	sum := sha256.Sum256(b)
	return string(sum[:]), nil
}

func (tx *changeTx) storeReport(ctx context.Context, in api.HostReport) error {
	var name, bootID string
	err := tx.QueryRowContext(ctx, "SELECT name, boot_id FROM hosts WHERE id = ?", in.ID).Scan(&name, &bootID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("look up host: %w", err)
	}
	what := ""
	switch {
	case err != nil:
		what = "host.register"
	case name != in.Name:
		what = "host.rename"
	case bootID != in.BootID:
		what = "host.boot"
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO hosts (id, name, version, boot_id, epoch, last_seen_us, created_us)
		VALUES (?1, ?2, ?3, ?4, 1, ?5, ?5)
		ON CONFLICT (id) DO UPDATE SET name = ?2, version = ?3, boot_id = ?4, last_seen_us = ?5`,
		in.ID, in.Name, in.Version, in.BootID, tx.at.UnixMicro())
	if sqlitedb.Violates(err, "hosts.name") {
		return api.Errorf(api.CodeConflict, "the name %s belongs to another host; give one of them another name", in.Name)
	}
	if err != nil {
		return fmt.Errorf("store host: %w", err)
	}
	if err := tx.replacePools(ctx, in); err != nil {
		return err
	}
	for _, i := range in.Instances {
		if err := tx.exec(ctx, "UPDATE instances SET state = ?, updated_us = ? WHERE id = ? AND host_id = ? AND state <> ?1",
			i.State, tx.at.UnixMicro(), i.ID, in.ID); err != nil {
			return err
		}
	}
	if what == "" {
		return nil
	}
	return tx.audit(ctx, api.Event{
		What: what, Host: in.Name, Object: "host/" + in.ID, From: name, To: in.Name,
		Details: map[string]any{"boot_id": in.BootID, "version": in.Version},
	})
}

// Hosts returns every host, by name.
func (s *Store) Hosts(ctx context.Context) ([]api.Host, error) {
	return queryAll(ctx, s.db.Read, s.scanHost, hostQuery+" ORDER BY name")
}

// Host returns the host that ref names.
func (s *Store) Host(ctx context.Context, ref string) (api.Host, error) {
	return viewOne(ctx, s, kindHost, ref, s.hostByID)
}

const hostQuery = "SELECT id, name, version, epoch, last_seen_us, created_us FROM hosts"

func (s *Store) hostByID(ctx context.Context, q querier, id string) (api.Host, error) {
	h, err := s.scanHost(q.QueryRowContext(ctx, hostQuery+" WHERE id = ?", id))
	if err != nil {
		return api.Host{}, fmt.Errorf("read host %s: %w", id, err)
	}
	return h, nil
}

func (s *Store) scanHost(row scanner) (api.Host, error) {
	var (
		h             api.Host
		seen, created int64
	)
	if err := row.Scan(&h.ID, &h.Name, &h.Version, &h.Epoch, &seen, &created); err != nil {
		return h, err
	}
	last := fromMicros(seen)
	if at, ok := s.hosts.lastSeen(h.ID); ok {
		last = at
	}
	h.LastSeenAt, h.CreatedAt = &last, fromMicros(created)
	h.Status = HostUp
	if s.now().Sub(last) > suspectAfter {
		h.Status = HostSuspect
	}
	return h, nil
}

// checkHost returns the id of the host that ref names, if epoch is its epoch:
// whoever comes with an older one was fenced since.
func (tx *changeTx) checkHost(ctx context.Context, ref string, epoch int64) (string, error) {
	id, err := resolve(ctx, tx, kindHost, ref)
	if err != nil {
		return "", err
	}
	var (
		name string
		now  int64
	)
	if err := tx.QueryRowContext(ctx, "SELECT name, epoch FROM hosts WHERE id = ?", id).Scan(&name, &now); err != nil {
		return "", fmt.Errorf("read host: %w", err)
	}
	if now != epoch {
		return "", api.Errorf(api.CodeStaleEpoch, "host %s is in epoch %d and the request is of epoch %d", name, now, epoch).With("epoch", now)
	}
	return id, nil
}
