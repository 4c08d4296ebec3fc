// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/storetest"
)

// Short names for storetest.
var (
	webDefinition    = storetest.WebDefinition
	toShelf, offload = storetest.ToShelf, storetest.Offload
	claim, undoClaim = storetest.Claim, storetest.UndoClaim
	complete, ofB    = storetest.Complete, storetest.OfB
)

// movedTo returns a setup function that makes transitions of an instance.
func movedTo(instance string, steps ...api.InstanceTransition) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		for _, in := range steps {
			must(s.Shelf.Transition(t.Context(), nobody, instance, in))(t)
		}
	}
}

// shelved and offloaded shelve an instance of host a.
func shelved(instance string) func(*testing.T, *Store) { return movedTo(instance, toShelf()) }

func offloaded(instance string) func(*testing.T, *Store) {
	return movedTo(instance, toShelf(), offload())
}

func askedOnB(instance string) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		if err := s.Shelf.AskUnshelve(t.Context(), nobody, instance, hostB); err != nil {
			t.Fatal(err)
		}
	}
}
