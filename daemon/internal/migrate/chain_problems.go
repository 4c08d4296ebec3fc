// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"sync"

	"github.com/volferry/volferry/internal/api"
)

// ChainProblem is what somebody else has done to the chain of the disk of a migration.
type ChainProblem struct {
	MigrationID, InstanceName string
	api.ChainProblem
}

// chainProblems are the problems that the watch has seen last, by migration.
type chainProblems struct {
	mu    sync.Mutex
	found map[string]ChainProblem
}

// of returns a copy of the problem of a migration, nil if there is none.
func (c *chainProblems) of(id string) *api.ChainProblem {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, has := c.found[id]; has {
		return &p.ChainProblem
	}
	return nil
}

// put keeps the problem of a migration, nil for none, and reports whether it is another one than
// before.
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

// chainGlances are the disks of open migrations, by migration, as WatchChains has read them from
// the journal: a glance each second reads none of it.
type chainGlances map[string]chainGlance

// chainGlance is a disk, and the image that takes the guest's writes before the switch.
type chainGlance struct{ instanceID, target, top string }
