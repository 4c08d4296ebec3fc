// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"

	"github.com/volferry/volferry/internal/api"
)

// An instance can run on a host that does not have it: somebody has moved the guest
// with virsh, or started a copy of its definition. That host says so in its reports,
// and only its word can be believed: the one that has the instance sees a domain that
// is off. Until that has ended, nothing of the instance that frees its volumes or
// changes its disks begins, or there would be two writers.

// setForeign notes which instances run on a host and are not its own.
func (c *hostCache) setForeign(hostID string, instances []string) {
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

// splitBrain returns the name of a host, not fenced and other than the one with the id or
// name own, on which the instance runs; "" if there is none.
func (c *hostCache) splitBrain(instanceID, own string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range c.foreign[instanceID] {
		if s := c.byID[id]; s != nil && id != own && s.row.name != own && !s.row.fenced {
			return s.row.name
		}
	}
	return ""
}

// CheckNoSplitBrain refuses to verb, something with an instance, while it runs on
// another host than hostID, which has it; "" is none.
func (tx *Tx) CheckNoSplitBrain(verb, instanceID, hostID string) error {
	other := tx.hosts.splitBrain(instanceID, hostID)
	if other == "" {
		return nil
	}
	return api.Errorf(api.CodeStateForbidden, "cannot %s: the instance runs on host %s, which does not have it; shut it down there, or fence that host", verb, other).
		With("host", other)
}

// noteSplitBrain says of an instance that it runs where it should not, if it does. What
// its own host notes is of a domain that is off.
func (c *hostCache) noteSplitBrain(i *api.Instance) {
	if other := c.splitBrain(i.ID, i.Host); other != "" {
		i.Note = "it runs on host " + other + ", which does not have it"
	}
}
