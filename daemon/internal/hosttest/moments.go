// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// Happening is an event of a test at one call.
type Happening struct {
	After bool  // the call takes effect first
	Lose  bool  // the answer is lost
	Err   error // the caller's error, or nil for the call's usual one
	Do    func()
}

// Moments are the calls of a test's hypervisors, registry and guards. A test can arrange a
// happening at one of them, and checks the invariants after each. The zero value is ready for use.
// With nil Moments nothing happens.
type Moments struct {
	// Look is called after each call that took effect. Set it before use.
	Look func()

	mu       sync.Mutex
	arranged bool
	nth      int
	what     Happening
	names    []string
	happened bool
	wrongs   []string
}

// Arrange makes h happen at the nth call from now; 1 is the next call.
func (m *Moments) Arrange(nth int, h Happening) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.arranged, m.nth, m.what, m.names = true, nth, h, nil
}

// Cancel removes the arrangement, and ends the recording of calls.
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

// Call makes one call; effect does the call's work. lost is the error that the caller gets for a
// lost answer.
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
