// SPDX-License-Identifier: Apache-2.0

package hostcache

import "slices"

// SetForeign sets the instances that run on the host and belong to another host.
func (c *Cache) SetForeign(hostID string, instances []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[hostID]
	if s == nil {
		return
	}
	for _, id := range s.foreign {
		hosts := slices.DeleteFunc(c.foreign[id], func(h string) bool { return h == hostID })
		if c.foreign[id] = hosts; len(hosts) == 0 {
			delete(c.foreign, id)
		}
	}
	for _, id := range instances {
		c.foreign[id] = append(c.foreign[id], hostID)
	}
	s.foreign = instances
}

// SplitBrain returns the name of a host other than own that runs the instance and is not fenced,
// "" if there is none. own is a name or an id.
func (c *Cache) SplitBrain(instanceID, own string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range c.foreign[instanceID] {
		if s := c.byID[id]; s != nil && id != own && s.Row.Name != own && !s.Row.Fenced {
			return s.Row.Name
		}
	}
	return ""
}
