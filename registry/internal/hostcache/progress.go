// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"maps"

	"github.com/volferry/volferry/internal/api"
)

// Progress returns the last reported state of a migration, false if there is none.
func (c *Cache) Progress(id string) (api.Migration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	host, ok := c.hostOfMigration[id]
	if !ok {
		return api.Migration{}, false
	}
	live, ok := c.byID[host].migrations[id]
	return live, ok
}

// ProgressOf returns the last reported open migrations of a host, by id. The caller must not change
// the map.
func (c *Cache) ProgressOf(hostID string) map[string]api.Migration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byID[hostID]; s != nil {
		return s.migrations
	}
	return nil
}

// SetProgress replaces the cached open migrations of a host.
func (c *Cache) SetProgress(hostID string, live map[string]api.Migration) {
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

// MigrationIDs returns the ids of the migrations with cached progress.
func (c *Cache) MigrationIDs() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := make([]string, 0, len(c.hostOfMigration))
	for id := range c.hostOfMigration {
		ids = append(ids, id)
	}
	return ids
}

// RemoveMigration drops a finished migration.
func (c *Cache) RemoveMigration(id string) {
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
