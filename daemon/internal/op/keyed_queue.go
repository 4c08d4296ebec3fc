// SPDX-License-Identifier: Apache-2.0

package op

import (
	"slices"
	"sync"
)

// keyedQueue runs ops that share a key one after the other: an op has its turn when no earlier op
// in the queue shares a key with it. So no op overtakes another, and two ops cannot wait for each
// other.
type keyedQueue struct {
	mu      sync.Mutex
	tickets []*ticket
	// moved is closed and replaced when a ticket leaves.
	moved chan struct{}
}

type ticket struct {
	op   string // empty for TryLock
	keys []string
}

func (t *ticket) shares(keys []string) bool {
	return slices.ContainsFunc(t.keys, func(k string) bool { return slices.Contains(keys, k) })
}

func newKeyedQueue() *keyedQueue { return &keyedQueue{moved: make(chan struct{})} }

func (q *keyedQueue) enter(mine *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tickets = append(q.tickets, mine)
}

func (q *keyedQueue) enterFree(mine *ticket) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.ContainsFunc(q.tickets, func(before *ticket) bool { return before.shares(mine.keys) }) {
		return false
	}
	q.tickets = append(q.tickets, mine)
	return true
}

func (q *keyedQueue) leave(mine *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tickets = slices.DeleteFunc(q.tickets, func(t *ticket) bool { return t == mine })
	close(q.moved)
	q.moved = make(chan struct{})
}

func (q *keyedQueue) blockedBy(mine *ticket) (before *ticket, moved <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.tickets {
		switch {
		case t == mine:
			return nil, nil
		case t.shares(mine.keys):
			return t, q.moved
		}
	}
	return nil, nil
}
