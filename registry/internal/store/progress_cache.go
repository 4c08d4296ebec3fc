// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/validate"
)

// LiveMigration returns what its host last said of a migration: its phase, its
// progress and its rate. It is the host's word, kept in memory alone, and may be
// older than a state that was stored since; state and places are those of
// Migration.
func (s *Store) LiveMigration(id string) (api.Migration, bool) { return s.hosts.migration(id) }

// NextProgress returns a channel that is closed when a host has said something of
// its migrations after the call: ask for it, then for LiveMigration, then wait.
func (s *Store) NextProgress() <-chan struct{} { return s.progress.Wait() }

// noteMigrations remembers how far the migrations of a host are. One that the
// registry does not have as that host's is left out.
func (s *Store) noteMigrations(ctx context.Context, in api.HostReport) error {
	if in.Migrations == nil {
		return nil
	}
	known := s.hosts.migrationsOf(in.ID)
	live := make(map[string]api.Migration, len(in.Migrations))
	for _, m := range in.Migrations {
		if _, ok := known[m.ID]; !ok {
			var owner string
			err := s.db.Read.QueryRowContext(ctx, "SELECT host_id FROM migrations WHERE id = ?", m.ID).Scan(&owner)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return fmt.Errorf("look up migration: %w", err)
			}
			if owner != in.ID {
				continue
			}
		}
		m.Error = validate.PrintableError(m.Error)
		live[m.ID] = m
	}
	s.hosts.setMigrations(in.ID, live)
	s.progress.Announce()
	return nil
}

// forgetEnded drops what is remembered of migrations that are over.
func (s *Store) forgetEnded(ctx context.Context) error {
	for _, id := range s.hosts.migrationIDs() {
		var state api.MigrationState
		err := s.db.Read.QueryRowContext(ctx, "SELECT state FROM migrations WHERE id = ?", id).Scan(&state)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("look up migration: %w", err)
		}
		if err != nil || state.Final() {
			s.hosts.forgetMigration(id)
		}
	}
	return nil
}

func (m *hostCache) migration(id string) (api.Migration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	host, ok := m.hostOf[id]
	if !ok {
		return api.Migration{}, false
	}
	live, ok := m.seen[host].migrations[id]
	return live, ok
}

func (m *hostCache) migrationsOf(hostID string) map[string]api.Migration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.seen[hostID]; s != nil {
		return s.migrations // replaced, never changed
	}
	return nil
}

func (m *hostCache) setMigrations(hostID string, live map[string]api.Migration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.seen[hostID]
	if s == nil {
		return
	}
	for id := range s.migrations {
		delete(m.hostOf, id)
	}
	for id := range live {
		m.hostOf[id] = hostID
	}
	s.migrations = live
}

func (m *hostCache) migrationIDs() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := make([]string, 0, len(m.hostOf))
	for id := range m.hostOf {
		ids = append(ids, id)
	}
	return ids
}

func (m *hostCache) forgetMigration(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.seen[m.hostOf[id]]
	if s == nil {
		return
	}
	rest := maps.Clone(s.migrations)
	delete(rest, id)
	s.migrations = rest
	delete(m.hostOf, id)
}
