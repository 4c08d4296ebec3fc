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

// setStrays notes which instances that are not its own run on a host.
func (m *hostCache) setStrays(hostID string, instances []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.seen[hostID]
	if s == nil {
		return
	}
	for _, id := range s.strays {
		hosts := slices.DeleteFunc(m.strays[id], func(h string) bool { return h == hostID })
		if m.strays[id] = hosts; len(hosts) == 0 {
			delete(m.strays, id)
		}
	}
	for _, id := range instances {
		m.strays[id] = append(m.strays[id], hostID)
	}
	s.strays = instances
}

// elsewhere returns the name of a host, not fenced and other than the one with the id or
// name own, on which the instance runs; "" if there is none.
func (m *hostCache) elsewhere(instanceID, own string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range m.strays[instanceID] {
		if s := m.seen[id]; s != nil && id != own && s.row.name != own && !s.row.fenced {
			return s.row.name
		}
	}
	return ""
}

// CheckNotElsewhere refuses to verb, something with an instance, while it runs on
// another host than hostID, which has it; "" is none.
func (tx *Tx) CheckNotElsewhere(verb, instanceID, hostID string) error {
	other := tx.hosts.elsewhere(instanceID, hostID)
	if other == "" {
		return nil
	}
	return api.Errorf(api.CodeStateForbidden, "cannot %s: the instance runs on host %s, which does not have it; shut it down there, or fence that host", verb, other).
		With("host", other)
}

// noteElsewhere says of an instance that it runs where it should not, if it does. What
// its own host notes is of a domain that is off.
func (m *hostCache) noteElsewhere(i *api.Instance) {
	if other := m.elsewhere(i.ID, i.Host); other != "" {
		i.Note = "it runs on host " + other + ", which does not have it"
	}
}
