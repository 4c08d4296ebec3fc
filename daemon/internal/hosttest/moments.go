// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// Happening is what happens at one call.
type Happening struct {
	After bool   // the call takes effect first
	Lose  bool   // the answer is lost: the caller does not learn the result
	Err   error  // the caller's error, if not the call's usual one
	Do    func() // another action
}

// Moments are the calls of a test's hypervisors, registry and guards. For each a happening can be
// arranged, and after each the invariants are checked. The zero value is ready for use; with nil
// nothing happens.
type Moments struct {
	// Look, if set, is called after each call that took effect. Set it before use.
	Look func()

	mu       sync.Mutex
	arranged bool
	nth      int
	what     Happening
	names    []string
	happened bool
	wrongs   []string
}

// Arrange makes something happen at the nth call from now; 1 is the next one.
func (m *Moments) Arrange(nth int, h Happening) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.arranged, m.nth, m.what, m.names = true, nth, h, nil
}

// Cancel removes the arranged happening, and stops the recording of calls.
func (m *Moments) Cancel() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.arranged = false
}

// Happened reports whether the arranged happening took place.
func (m *Moments) Happened() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.happened
}

// Calls returns the names of the calls since Arrange, until Cancel.
func (m *Moments) Calls() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.names)
}

// Call makes one call. Lost is the caller's error if the answer is lost.
func (m *Moments) Call(name string, lost error, effect func() error) error {
	if m == nil {
		return effect()
	}
	before, after := m.next(name)
	if before.happens() {
		return cmp.Or(before.Err, lost)
	}
	err := effect()
	if m.Look != nil {
		m.Look()
	}
	if after.happens() {
		return cmp.Or(after.Err, lost)
	}
	return err
}

// next counts a call, and returns the happenings before and after its effect.
func (m *Moments) next(name string) (before, after Happening) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.arranged {
		return before, after
	}
	m.names = append(m.names, name)
	if len(m.names) != m.nth {
		return before, after
	}
	m.happened = true
	if m.what.After {
		return before, m.what
	}
	return m.what, after
}

func (h Happening) happens() (lose bool) {
	if h.Do != nil {
		h.Do()
	}
	return h.Lose
}

// Wrong records a broken invariant.
func (m *Moments) Wrong(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrongs = append(m.wrongs, fmt.Sprintf(format, args...))
}

// Wrongs returns the broken invariants so far.
func (m *Moments) Wrongs() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.wrongs)
}
