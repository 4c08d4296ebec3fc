// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/storetest"
)

func webDefinition() *api.InstanceDefinition {
	return &api.InstanceDefinition{Domain: "<domain/>", NVRAM: []byte{0, 1, 2}, Disks: map[string]api.SlotDefinition{"vda": storetest.RootSlot}, Autostart: true}
}

// The transitions of host a. The op is that of a shelve, or of an unshelve.
func toShelf() api.InstanceTransition {
	return api.InstanceTransition{From: api.InstanceStopped, To: api.InstanceShelved, Host: hostA, Epoch: 1, OpID: "op-shelve", Definition: webDefinition()}
}

func offload() api.InstanceTransition {
	return api.InstanceTransition{From: api.InstanceShelved, To: api.InstanceShelvedOffloaded, Host: hostA, Epoch: 1, OpID: "op-shelve"}
}

func claim() api.InstanceTransition {
	return api.InstanceTransition{From: api.InstanceShelvedOffloaded, To: api.InstanceShelved, Host: hostA, Epoch: 1, OpID: "op-unshelve"}
}

func undoClaim() api.InstanceTransition {
	return api.InstanceTransition{From: api.InstanceShelved, To: api.InstanceShelvedOffloaded, Host: hostA, Epoch: 1, OpID: "op-unshelve"}
}

func complete() api.InstanceTransition {
	return api.InstanceTransition{From: api.InstanceShelved, To: api.InstanceStopped, Host: hostA, Epoch: 1, OpID: "op-unshelve"}
}

// ofB makes a transition one of host b.
func ofB(in api.InstanceTransition) api.InstanceTransition {
	in.Host, in.OpID = hostB, in.OpID+"-b"
	return in
}

// moved makes transitions of an instance.
func movedTo(instance string, steps ...api.InstanceTransition) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		for _, in := range steps {
			must(s.TransitionInstance(t.Context(), nobody, instance, in))(t)
		}
	}
}

// shelved and offloaded put an instance of host a on the shelf.
func shelved(instance string) func(*testing.T, *Store) { return movedTo(instance, toShelf()) }

func offloaded(instance string) func(*testing.T, *Store) {
	return movedTo(instance, toShelf(), offload())
}

func askedOnB(instance string) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		if err := s.AskUnshelve(t.Context(), nobody, instance, hostB); err != nil {
			t.Fatal(err)
		}
	}
}
