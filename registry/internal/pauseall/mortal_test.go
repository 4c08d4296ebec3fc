// SPDX-License-Identifier: Apache-2.0

package pauseall_test

import (
	"context"
	"errors"
	"sync"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// mortal kills the loop at its n-th change of the store or call of a host: before it
// is made, or after it and before the loop hears of it.
type mortal struct {
	n     int
	after bool
	kill  func()

	mu    sync.Mutex
	count int
	dead  bool
}

var errDead = errors.New("killed")

// live makes one change or call, if the loop is still there.
func live[T any](m *mortal, do func() (T, error)) (T, error) {
	var none T
	m.mu.Lock()
	m.count++
	now := m.count == m.n
	gone := m.dead || now && !m.after
	m.dead = m.dead || now
	m.mu.Unlock()
	if gone {
		m.kill()
		return none, errDead
	}
	v, err := do()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		m.kill()
		return none, errDead
	}
	return v, err
}

func (m *mortal) isDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

type mortalStore struct {
	*workflow.Store
	m *mortal
}

func (s mortalStore) SetPauseInstance(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, g workflow.PauseInstance) (workflow.Pause, error) {
	return live(s.m, func() (workflow.Pause, error) { return s.Store.SetPauseInstance(ctx, call, id, phase, g) })
}

func (s mortalStore) SetPauseCopy(ctx context.Context, call store.Call, id string, phase workflow.PausePhase, attempt int, dropEnd string, why *api.Error) (workflow.Pause, error) {
	return live(s.m, func() (workflow.Pause, error) {
		return s.Store.SetPauseCopy(ctx, call, id, phase, attempt, dropEnd, why)
	})
}

func (s mortalStore) SuspendPause(ctx context.Context, call store.Call, id string) (workflow.Pause, error) {
	return live(s.m, func() (workflow.Pause, error) { return s.Store.SuspendPause(ctx, call, id) })
}

func (s mortalStore) SavePause(ctx context.Context, call store.Call, id string) (workflow.Pause, error) {
	return live(s.m, func() (workflow.Pause, error) { return s.Store.SavePause(ctx, call, id) })
}

func (s mortalStore) ResumePause(ctx context.Context, call store.Call, id string) (workflow.Pause, error) {
	return live(s.m, func() (workflow.Pause, error) { return s.Store.ResumePause(ctx, call, id) })
}

func (s mortalStore) CopyPause(ctx context.Context, call store.Call, id string) (workflow.Pause, error) {
	return live(s.m, func() (workflow.Pause, error) { return s.Store.CopyPause(ctx, call, id) })
}

func (s mortalStore) FlipPause(ctx context.Context, call store.Call, id string, dst api.Location) (workflow.Pause, error) {
	return live(s.m, func() (workflow.Pause, error) { return s.Store.FlipPause(ctx, call, id, dst) })
}

func (s mortalStore) CancelPause(ctx context.Context, call store.Call, ref string, why *api.Error) (workflow.Pause, error) {
	return live(s.m, func() (workflow.Pause, error) { return s.Store.CancelPause(ctx, call, ref, why) })
}

func (s mortalStore) FinishPause(ctx context.Context, call store.Call, id string) (workflow.Pause, error) {
	return live(s.m, func() (workflow.Pause, error) { return s.Store.FinishPause(ctx, call, id) })
}

func (s mortalStore) WithdrawTask(ctx context.Context, call store.Call, id string) (bool, error) {
	return live(s.m, func() (bool, error) { return s.Store.WithdrawTask(ctx, call, id) })
}

type mortalRelay struct {
	relay *relay.Relay
	m     *mortal
}

func (r mortalRelay) Do(ctx context.Context, req relay.Request) (int, []byte, error) {
	type answer struct {
		status int
		body   []byte
	}
	do := func() (answer, error) {
		status, body, err := r.relay.Do(ctx, req)
		return answer{status, body}, err
	}
	if !req.Change {
		a, err := do()
		return a.status, a.body, err
	}
	a, err := live(r.m, do)
	return a.status, a.body, err
}
