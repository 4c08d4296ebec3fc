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

// MortalStore is the store of loops that a Mortal kills.
type MortalStore struct {
	*workflow.Store
	Mortal *Mortal
}

// SetPauseInstance is a change of the store.
func (s MortalStore) SetPauseInstance(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, g workflow.PauseInstance) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Store.SetPauseInstance(ctx, call, id, phase, g) })
}

// SetPauseCopy is a change of the store.
func (s MortalStore) SetPauseCopy(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, attempt int, dropEnd string, why *api.Error) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) {
		return s.Store.SetPauseCopy(ctx, call, id, phase, attempt, dropEnd, why)
	})
}

// SuspendPause is a change of the store.
func (s MortalStore) SuspendPause(ctx context.Context, call store.Call, id string) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Store.SuspendPause(ctx, call, id) })
}

// SavePause is a change of the store.
func (s MortalStore) SavePause(ctx context.Context, call store.Call, id string) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Store.SavePause(ctx, call, id) })
}

// ResumePause is a change of the store.
func (s MortalStore) ResumePause(ctx context.Context, call store.Call, id string) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Store.ResumePause(ctx, call, id) })
}

// CopyPause is a change of the store.
func (s MortalStore) CopyPause(ctx context.Context, call store.Call, id string) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Store.CopyPause(ctx, call, id) })
}

// FlipPause is a change of the store.
func (s MortalStore) FlipPause(ctx context.Context, call store.Call, id string, dst api.Location) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Store.FlipPause(ctx, call, id, dst) })
}

// CancelPause is a change of the store.
func (s MortalStore) CancelPause(ctx context.Context, call store.Call, ref string, why *api.Error) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Store.CancelPause(ctx, call, ref, why) })
}

// FinishPause is a change of the store.
func (s MortalStore) FinishPause(ctx context.Context, call store.Call, id string) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Store.FinishPause(ctx, call, id) })
}

// WithdrawTask is a change of the store.
func (s MortalStore) WithdrawTask(ctx context.Context, call store.Call, id string) (bool, error) {
	return live(s.Mortal, func() (bool, error) { return s.Store.WithdrawTask(ctx, call, id) })
}

// AskLive is a change of the store.
func (s MortalStore) AskLive(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, hostID string, c workflow.LiveCall) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Store.AskLive(ctx, call, id, phase, hostID, c) })
}

// AnswerLive is a change of the store.
func (s MortalStore) AnswerLive(ctx context.Context, call store.Call, id, hostID string, c workflow.LiveCall, a workflow.LiveAnswer) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Store.AnswerLive(ctx, call, id, hostID, c, a) })
}

// PassLive is a change of the store.
func (s MortalStore) PassLive(ctx context.Context, call store.Call, id string, from, to workflow.PausePhase) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Store.PassLive(ctx, call, id, from, to) })
}

// MadeLive is a change of the store.
func (s MortalStore) MadeLive(ctx context.Context, call store.Call, id string, dst api.Location) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Store.MadeLive(ctx, call, id, dst) })
}

// AgainLive is a change of the store.
func (s MortalStore) AgainLive(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, why *api.Error) (workflow.Pause, error) {
	return live(s.Mortal, func() (workflow.Pause, error) { return s.Store.AgainLive(ctx, call, id, phase, why) })
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
