// SPDX-License-Identifier: Apache-2.0

package op

import (
	"slices"
	"sync"
)

// turns lets ops that share a key through one after the other, in the order in
// which they entered. An op has its turn when none that entered before it and
// is still inside shares a key with it; so no op overtakes another and two
// cannot wait for each other.
type turns struct {
	mu    sync.Mutex
	queue []*turn
	// moved is closed, and replaced, when one leaves.
	moved chan struct{}
}

// turn is a place in the queue.
type turn struct {
	op   string // empty for one of TryTurn
	keys []string
}

func (t *turn) shares(keys []string) bool {
	return slices.ContainsFunc(t.keys, func(k string) bool { return slices.Contains(keys, k) })
}

func newTurns() *turns { return &turns{moved: make(chan struct{})} }

func (t *turns) enter(mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = append(t.queue, mine)
}

// enterFree enters if it is its turn at once, and says whether it is.
func (t *turns) enterFree(mine *turn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.ContainsFunc(t.queue, func(before *turn) bool { return before.shares(mine.keys) }) {
		return false
	}
	t.queue = append(t.queue, mine)
	return true
}

func (t *turns) leave(mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = slices.DeleteFunc(t.queue, func(q *turn) bool { return q == mine })
	close(t.moved)
	t.moved = make(chan struct{})
}

// ask returns nil if it is its turn, else whose turn is before it and a channel that
// is closed when it is worth asking again.
func (t *turns) ask(mine *turn) (before *turn, moved <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range t.queue {
		switch {
		case q == mine:
			return nil, nil
		case q.shares(mine.keys):
			return q, t.moved
		}
	}
	return nil, nil
}
