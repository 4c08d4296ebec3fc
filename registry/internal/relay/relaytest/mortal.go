// SPDX-License-Identifier: Apache-2.0

package relaytest

import (
	"context"
	"errors"
	"sync"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// Mortal kills the loops at their N-th change of the store or call of a host: before it or, with
// After, after it and before the loop gets the result.
type Mortal struct {
	N     int
	After bool
	// Kill ends the loops.
	Kill func()

	mu    sync.Mutex
	count int
	dead  bool
}

var errDead = errors.New("killed")

// live makes one change or call, unless the loop is dead.
func live[T any](m *Mortal, do func() (T, error)) (T, error) {
	var none T
	m.mu.Lock()
	m.count++
	now := m.count == m.N
	gone := m.dead || now && !m.After
	m.dead = m.dead || now
	m.mu.Unlock()
	if gone {
		m.Kill()
		return none, errDead
	}
	v, err := do()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		m.Kill()
		return none, errDead
	}
	return v, err
}

// IsDead reports whether the loops were killed.
func (m *Mortal) IsDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

// MortalLoop is a loop that a Mortal kills.
type MortalLoop struct {
	Loop
	Mortal *Mortal
}

// Run implements Loop.
func (l MortalLoop) Run(ctx context.Context) error {
	ctx, l.Mortal.Kill = context.WithCancel(ctx)
	defer l.Mortal.Kill()
	return l.Loop.Run(ctx)
}

// MortalPauses has the moves with paused guests for loops that a Mortal kills.
type MortalPauses struct {
	*workflow.Pauses
	Mortal *Mortal
}

// SetInstance changes the store.
func (s MortalPauses) SetInstance(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, g workflow.PauseInstance) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Pauses.SetInstance(ctx, call, id, phase, g) })
}

// SetCopy changes the store.
func (s MortalPauses) SetCopy(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, attempt int, dropEnd string, why *api.Error) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) {
		return s.Pauses.SetCopy(ctx, call, id, phase, attempt, dropEnd, why)
	})
}

// Suspend changes the store.
func (s MortalPauses) Suspend(ctx context.Context, call store.Call, id string) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Pauses.Suspend(ctx, call, id) })
}

// Save changes the store.
func (s MortalPauses) Save(ctx context.Context, call store.Call, id string) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Pauses.Save(ctx, call, id) })
}

// Resume changes the store.
func (s MortalPauses) Resume(ctx context.Context, call store.Call, id string) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Pauses.Resume(ctx, call, id) })
}

// Copy changes the store.
func (s MortalPauses) Copy(ctx context.Context, call store.Call, id string) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Pauses.Copy(ctx, call, id) })
}

// Flip changes the store.
func (s MortalPauses) Flip(ctx context.Context, call store.Call, id string, dst api.Location) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Pauses.Flip(ctx, call, id, dst) })
}

// Cancel changes the store.
func (s MortalPauses) Cancel(ctx context.Context, call store.Call, ref string, why *api.Error) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Pauses.Cancel(ctx, call, ref, why) })
}

// Finish changes the store.
func (s MortalPauses) Finish(ctx context.Context, call store.Call, id string) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Pauses.Finish(ctx, call, id) })
}

// MortalTasks are the tasks of loops that a Mortal kills.
type MortalTasks struct {
	*workflow.Tasks
	Mortal *Mortal
}

// Withdraw changes the store.
func (s MortalTasks) Withdraw(ctx context.Context, call store.Call, id string) (bool, error) {
	return live(s.Mortal, func() (bool, error) { return s.Tasks.Withdraw(ctx, call, id) })
}

// MortalLiveMoves are the live moves of loops that a Mortal kills.
type MortalLiveMoves struct {
	*workflow.LiveMoves
	Mortal *Mortal
}

// Ask changes the store.
func (s MortalLiveMoves) Ask(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, hostID string, c workflow.LiveCall) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.LiveMoves.Ask(ctx, call, id, phase, hostID, c) })
}

// Answer changes the store.
func (s MortalLiveMoves) Answer(ctx context.Context, call store.Call, id, hostID string, c workflow.LiveCall, a workflow.LiveAnswer) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.LiveMoves.Answer(ctx, call, id, hostID, c, a) })
}

// Pass changes the store.
func (s MortalLiveMoves) Pass(ctx context.Context, call store.Call, id string, from, to workflow.PausePhase) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.LiveMoves.Pass(ctx, call, id, from, to) })
}

// Made changes the store.
func (s MortalLiveMoves) Made(ctx context.Context, call store.Call, id string, dst api.Location) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.LiveMoves.Made(ctx, call, id, dst) })
}

// Again changes the store.
func (s MortalLiveMoves) Again(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, why *api.Error) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.LiveMoves.Again(ctx, call, id, phase, why) })
}

// MortalRelay is the relay of loops that a Mortal kills.
type MortalRelay struct {
	Relay  *relay.Relay
	Mortal *Mortal
}

// Do implements hostop.Relay.
func (r MortalRelay) Do(ctx context.Context, req relay.Request) (int, []byte, error) {
	type answer struct {
		status int
		body   []byte
	}
	do := func() (answer, error) {
		status, body, err := r.Relay.Do(ctx, req)
		return answer{status, body}, err
	}
	if !req.Change {
		a, err := do()
		return a.status, a.body, err
	}
	a, err := live(r.Mortal, do)
	return a.status, a.body, err
}
