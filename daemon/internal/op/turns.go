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
	queue []turn
	// moved is closed, and replaced, when an op leaves.
	moved chan struct{}
}

type turn struct {
	id   string
	keys []string
}

func newTurns() *turns { return &turns{moved: make(chan struct{})} }

func (t *turns) enter(id string, keys []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = append(t.queue, turn{id, keys})
}

func (t *turns) leave(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = slices.DeleteFunc(t.queue, func(q turn) bool { return q.id == id })
	close(t.moved)
	t.moved = make(chan struct{})
}

// ask returns nil if it is the op's turn, else an op that is before it and a channel
// that is closed when it is worth asking again.
func (t *turns) ask(id string) (behind string, moved <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.queue, func(q turn) bool { return q.id == id })
	if i < 0 {
		return "", nil
	}
	mine := t.queue[i].keys
	for _, before := range t.queue[:i] {
		if slices.ContainsFunc(before.keys, func(k string) bool { return slices.Contains(mine, k) }) {
			return before.id, t.moved
		}
	}
	return "", nil
}
