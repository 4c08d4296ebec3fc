// SPDX-License-Identifier: Apache-2.0

package migratetest

import (
	"errors"
	"maps"
	"sync"
)

// FakeGuards are guards in memory, with the hook that asks them.
type FakeGuards struct {
	mu      sync.Mutex
	reasons map[Guard]string
}

// Guard is the guard of an owner on a domain.
type Guard struct{ id, owner string }

func newGuards() *FakeGuards { return &FakeGuards{reasons: map[Guard]string{}} }

// Set implements steps.Guards.
func (g *FakeGuards) Set(id, owner, reason string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reasons[Guard{id, owner}] = reason
	return nil
}

// Clear implements steps.Guards.
func (g *FakeGuards) Clear(id, owner string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.reasons, Guard{id, owner})
	return nil
}

// Has implements steps.Guards.
func (g *FakeGuards) Has(id, owner string) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.reasons[Guard{id, owner}]
	return ok, nil
}

// Enforced implements steps.Guards.
func (g *FakeGuards) Enforced() error { return nil }

// All are the reasons of all guards that are set.
func (g *FakeGuards) All() map[Guard]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.reasons)
}

func (g *FakeGuards) hook(id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for guard, reason := range g.reasons {
		if guard.id == id {
			return errors.New(reason)
		}
	}
	return nil
}
