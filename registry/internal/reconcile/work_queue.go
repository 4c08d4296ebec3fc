// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"sync"
	"time"

	"github.com/volferry/volferry/internal/retry"
)

// A call without an answer, or with a temporary refusal, is repeated after a delay within these
// bounds.
const (
	firstDelay = 2 * time.Second
	maxDelay   = time.Minute
)

// WorkQueue makes calls concurrently with a loop, at most one at a time for each key. After a
// failure the next call for the key must wait, longer each time. The zero value is ready, and safe
// for concurrent use.
type WorkQueue[K comparable] struct {
	// Ended, if not nil, is called after a call during which a caller has found its key busy.
	Ended func()

	underway sync.WaitGroup

	mu sync.Mutex
	// busy has the keys with a running call, and whether a caller has found the key busy.
	busy  map[K]bool
	later map[K]*delay
}

type delay struct {
	until   time.Time
	backoff retry.Backoff
}

// Go starts a call for key in the background, unless one is running or must wait. After an error
// the next one must wait.
func (c *WorkQueue[K]) Go(key K, do func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.find(key) || !c.due(key) {
		return
	}
	if c.busy == nil {
		c.busy = map[K]bool{}
	}
	c.busy[key] = false
	c.underway.Go(func() {
		if found := c.end(key, do()); found && c.Ended != nil {
			c.Ended()
		}
	})
}

func (c *WorkQueue[K]) end(key K, err error) (found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found = c.busy[key]
	delete(c.busy, key)
	if err != nil {
		c.putOff(key)
	}
	return found
}

// find reports whether a call for key is running, and records that a caller has found it busy. The
// caller must hold mu.
func (c *WorkQueue[K]) find(key K) bool {
	_, busy := c.busy[key]
	if busy {
		c.busy[key] = true
	}
	return busy
}

// Wait returns when no call is running.
func (c *WorkQueue[K]) Wait() { c.underway.Wait() }

// Busy reports whether a call for key is running.
func (c *WorkQueue[K]) Busy(key K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(key)
}

// Due reports whether a call for key need not wait.
func (c *WorkQueue[K]) Due(key K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.due(key)
}

func (c *WorkQueue[K]) due(key K) bool {
	d, delayed := c.later[key]
	return !delayed || !time.Now().Before(d.until)
}

// PutOff delays the next call for key, longer each time.
func (c *WorkQueue[K]) PutOff(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putOff(key)
}

func (c *WorkQueue[K]) putOff(key K) {
	if c.later == nil {
		c.later = map[K]*delay{}
	}
	d := c.later[key]
	if d == nil {
		d = &delay{backoff: retry.Backoff{First: firstDelay, Max: maxDelay}}
		c.later[key] = d
	}
	d.until = time.Now().Add(d.backoff.Next())
}

// Settled resets the delay of calls for key.
func (c *WorkQueue[K]) Settled(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.later, key)
}
