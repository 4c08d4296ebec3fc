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

// MigrationProgress returns what its host last said of a migration: its phase, its
// progress and its rate. It is the host's word, kept in memory alone, and may be
// older than a state that was stored since; state and places are those of
// Migration.
func (s *Store) MigrationProgress(id string) (api.Migration, bool) { return s.hosts.progress(id) }

// NextProgress returns a channel that is closed when a host has said something of
// its migrations after the call: ask for it, then for MigrationProgress, then wait.
func (s *Store) NextProgress() <-chan struct{} { return s.progress.Wait() }

// cacheProgress remembers how far the migrations of a host are. One that the
// registry does not have as that host's is left out.
func (s *Store) cacheProgress(ctx context.Context, in api.HostReport) error {
	if in.Migrations == nil {
		return nil
	}
	known := s.hosts.progressOf(in.ID)
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
	s.hosts.setProgress(in.ID, live)
	s.progress.Announce()
	return nil
}

// dropFinished drops what is remembered of migrations that are over.
func (s *Store) dropFinished(ctx context.Context) error {
	for _, id := range s.hosts.migrationIDs() {
		var state api.MigrationState
		err := s.db.Read.QueryRowContext(ctx, "SELECT state FROM migrations WHERE id = ?", id).Scan(&state)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("look up migration: %w", err)
		}
		if err != nil || state.Final() {
			s.hosts.removeMigration(id)
		}
	}
	return nil
}

func (c *hostCache) progress(id string) (api.Migration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	host, ok := c.hostOfMigration[id]
	if !ok {
		return api.Migration{}, false
	}
	live, ok := c.byID[host].migrations[id]
	return live, ok
}

func (c *hostCache) progressOf(hostID string) map[string]api.Migration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[hostID]; s != nil {
		return s.migrations // replaced, never changed
	}
	return nil
}

func (c *hostCache) setProgress(hostID string, live map[string]api.Migration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[hostID]
	if s == nil {
		return
	}
	for id := range s.migrations {
		delete(c.hostOfMigration, id)
	}
	for id := range live {
		c.hostOfMigration[id] = hostID
	}
	s.migrations = live
}

func (c *hostCache) migrationIDs() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := make([]string, 0, len(c.hostOfMigration))
	for id := range c.hostOfMigration {
		ids = append(ids, id)
	}
	return ids
}

func (c *hostCache) removeMigration(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[c.hostOfMigration[id]]
	if s == nil {
		return
	}
	rest := maps.Clone(s.migrations)
	delete(rest, id)
	s.migrations = rest
	delete(c.hostOfMigration, id)
}
