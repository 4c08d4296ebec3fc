// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/validate"
)

// MigrationProgress returns what its host last said of a migration: its phase, its
// progress and its rate. It is the host's word, kept in memory alone, and may be
// older than a state that was stored since; state and places are those of
// Migration.
func (s *Store) MigrationProgress(id string) (api.Migration, bool) { return s.hosts.Progress(id) }

// NextProgress returns a channel that is closed when a host has said something of
// its migrations after the call: ask for it, then for MigrationProgress, then wait.
func (s *Store) NextProgress() <-chan struct{} { return s.progress.Wait() }

// cacheProgress remembers how far the migrations of a host are. One that the
// registry does not have as that host's is left out.
func (s *Store) cacheProgress(ctx context.Context, in api.HostReport) error {
	if in.Migrations == nil {
		return nil
	}
	known := s.hosts.ProgressOf(in.ID)
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
	s.hosts.SetProgress(in.ID, live)
	s.progress.Announce()
	return nil
}

// dropFinished drops what is remembered of migrations that are over.
func (s *Store) dropFinished(ctx context.Context) error {
	for _, id := range s.hosts.MigrationIDs() {
		var state api.MigrationState
		err := s.db.Read.QueryRowContext(ctx, "SELECT state FROM migrations WHERE id = ?", id).Scan(&state)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("look up migration: %w", err)
		}
		if err != nil || state.Final() {
			s.hosts.RemoveMigration(id)
		}
	}
	return nil
}
