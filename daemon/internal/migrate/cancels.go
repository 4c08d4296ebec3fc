// SPDX-License-Identifier: Apache-2.0

package migrate

import "sync"

// cancels counts, by migration, the cancel calls that are being served.
type cancels struct {
	mu      sync.Mutex
	serving map[string]int
}

func (c *cancels) begin(id string) (end func()) {
	c.add(id, 1)
	return func() { c.add(id, -1) }
}

func (c *cancels) add(id string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serving == nil {
		c.serving = map[string]int{}
	}
	if c.serving[id] += n; c.serving[id] == 0 {
		delete(c.serving, id)
	}
}

func (c *cancels) has(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.serving[id] > 0
}
