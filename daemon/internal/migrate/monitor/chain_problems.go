// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"sync"

	"github.com/volferry/volferry/internal/api"
)

// ChainProblem is the problem of a migration's chain that another program has changed.
type ChainProblem struct {
	MigrationID, InstanceName string
	api.ChainProblem
}

type chainProblems struct {
	mu    sync.Mutex
	found map[string]ChainProblem
}

func (c *chainProblems) of(id string) *api.ChainProblem {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, has := c.found[id]; has {
		return &p.ChainProblem
	}
	return nil
}

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

// chainGlances has, by migration, the disks of open migrations and their expected top images.
// WatchChains fills it for its quick looks at top images, which do not read the journal.
type chainGlances map[string]chainGlance

type chainGlance struct{ instanceID, target, top string }
