// SPDX-License-Identifier: Apache-2.0

package store

import (
	"github.com/volferry/volferry/internal/api"
)

// An instance can run on a host that does not have it: somebody has moved the guest
// with virsh, or started a copy of its definition. That host says so in its reports,
// and only its word can be believed: the one that has the instance sees a domain that
// is off. Until that has ended, nothing of the instance that frees its volumes or
// changes its disks begins, or there would be two writers.

// CheckNoSplitBrain refuses to verb, something with an instance, while it runs on
// another host than hostID, which has it; "" is none.
func (tx *Tx) CheckNoSplitBrain(verb, instanceID, hostID string) error {
	other := tx.hosts.SplitBrain(instanceID, hostID)
	if other == "" {
		return nil
	}
	return api.Errorf(api.CodeStateForbidden, "cannot %s: the instance runs on host %s, which does not have it; shut it down there, or fence that host", verb, other).
		With("host", other)
}

// noteSplitBrain says of an instance that it runs where it should not, if it does. What
// its own host notes is of a domain that is off.
func (s *Store) noteSplitBrain(i *api.Instance) {
	if other := s.hosts.SplitBrain(i.ID, i.Host); other != "" {
		i.Note = "it runs on host " + other + ", which does not have it"
	}
}
