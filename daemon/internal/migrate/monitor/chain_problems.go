// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"sync"

	"github.com/volferry/volferry/internal/api"
)

// ChainProblem is another program's change of a migration's chain.
type ChainProblem struct {
	MigrationID, InstanceName string
	api.ChainProblem
}

// chainProblems are the problems that the watch saw last, by migration.
type chainProblems struct {
	mu    sync.Mutex
	found map[string]ChainProblem
}

// of returns a copy of the problem of a migration, or nil.
func (c *chainProblems) of(id string) *api.ChainProblem {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, has := c.found[id]; has {
		return &p.ChainProblem
	}
	return nil
}

// put stores the problem of a migration, or nil, and reports whether it changed.
func (c *chainProblems) put(id, instanceName string, p *api.ChainProblem) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, had := c.found[id]
	if p == nil {
		delete(c.found, id)
		return had
	}
	if c.found == nil {
		c.found = map[string]ChainProblem{}
	}
	c.found[id] = ChainProblem{id, instanceName, *p}
	return was.ChainProblem != *p
}

// chainGlances are the disks of open migrations, by migration. WatchChains has them from the
// journal, which the glance of each second does not read.
type chainGlances map[string]chainGlance

type chainGlance struct{ instanceID, target, top string }
