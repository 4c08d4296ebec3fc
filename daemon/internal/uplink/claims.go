// SPDX-License-Identifier: Apache-2.0

package uplink

import "sync"

type claims struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (c *claims) claim(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids[id] {
		return false
	}
	c.ids[id] = true
	return true
}

func (c *claims) unclaim(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ids, id)
}

func (c *claims) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ids)
}
