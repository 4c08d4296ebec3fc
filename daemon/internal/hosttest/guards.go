// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/guard"
)

// Guards are guards in memory that behave like guard.Dir and the hook. A happening is possible at
// each Set, Clear and Has.
type Guards struct {
	Moments *Moments
	// HookError is a fault of the hook; a hook with a fault knows no start tokens.
	HookError error
	// NotEnforced is why libvirt calls no hook, or nil.
	NotEnforced error

	mu     sync.Mutex
	set    map[string][]guard.Guard // by domain
	tokens map[string]startToken
	lets   bool
	full   error
}

type startToken struct{ text, owner string }

// NewGuards returns an empty set of guards.
func NewGuards(m *Moments) *Guards {
	return &Guards{Moments: m, set: map[string][]guard.Guard{}, tokens: map[string]startToken{}}
}

var errGuards = errors.New("the disk of the guards is full")

func (g *Guards) do(name string, effect func() error) error {
	return g.Moments.Call(name, errGuards, func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		return effect()
	})
}

// Set guards a domain for an owner.
func (g *Guards) Set(id, owner, reason string) error {
	return g.do("Guards.Set", func() error {
		if g.full != nil {
			return g.full
		}
		g.set[id] = append(g.without(id, owner), guard.Guard{Owner: owner, Reason: reason})
		delete(g.tokens, id)
		return nil
	})
}

// Clear removes an owner's guard; other guards stay.
func (g *Guards) Clear(id, owner string) error {
	return g.do("Guards.Clear", func() error {
		if g.set[id] = g.without(id, owner); len(g.set[id]) == 0 {
			delete(g.set, id)
		}
		delete(g.tokens, id)
		return nil
	})
}

func (g *Guards) without(id, owner string) []guard.Guard {
	return slices.DeleteFunc(slices.Clone(g.set[id]), func(o guard.Guard) bool { return o.Owner == owner })
}

// Has reports whether the owner guards the domain.
func (g *Guards) Has(id, owner string) (has bool, err error) {
	err = g.do("Guards.Has", func() error {
		has = len(g.without(id, owner)) < len(g.set[id])
		return nil
	})
	return has, err
}

// Of returns a domain's guards. It never fails.
func (g *Guards) Of(id string) ([]guard.Guard, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.set[id]), nil
}

// List returns the reasons of all guards by domain, each a line "REASON [OWNER]".
func (g *Guards) List() (map[string]string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[string]string{}
	for id, guards := range g.set {
		var lines []string
		for _, o := range guards {
			lines = append(lines, o.Reason+" ["+o.Owner+"]")
		}
		all[id] = strings.Join(lines, "\n")
	}
	return all, nil
}

// Reasons returns a domain's part of List.
func (g *Guards) Reasons(id string) string {
	all, _ := g.List()
	return all[id]
}

// Enforced returns NotEnforced.
func (g *Guards) Enforced() error { return g.NotEnforced }

// IssueStartToken returns a token that lets a start pass the owner's guard.
func (g *Guards) IssueStartToken(id, owner string) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tokens[id] = startToken{uuid.NewString(), owner}
	return g.tokens[id].text, nil
}

// RevokeStartToken ends a domain's token.
func (g *Guards) RevokeStartToken(id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.tokens, id)
	return nil
}

// HookKnowsStartTokens returns HookError.
func (g *Guards) HookKnowsStartTokens() error { return g.HookError }

// Hook does the work of libvirt's hook. It returns an error if it refuses the start.
func (g *Guards) Hook(id string) error { return g.HookWithToken(id, "") }

// HookWithToken does the same as Hook for a start with this token.
func (g *Guards) HookWithToken(id, token string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lets {
		return nil
	}
	has := g.tokens[id]
	for _, o := range g.set[id] {
		if g.HookError != nil || token == "" || token != has.text || o.Owner != has.owner {
			return fmt.Errorf("guarded: %v", g.set[id])
		}
	}
	return nil
}

// Let makes the hook permit every start while lets is true, as if libvirt had run the hook before
// the guard was set.
func (g *Guards) Let(lets bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lets = lets
}

// Fill makes Set fail with err. A nil err ends that.
func (g *Guards) Fill(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.full = err
}

// Guarded returns the guarded domains' ids, sorted.
func (g *Guards) Guarded() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.set))
}

// Issued reports whether the domain has a start token.
func (g *Guards) Issued(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tokens[id] != startToken{}
}
