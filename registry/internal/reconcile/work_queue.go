// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"sync"
	"time"

	"github.com/volferry/volferry/internal/retry"
)

// A call that got no answer, or was refused for the moment, is made again after a delay
// between these two.
const (
	firstDelay = 2 * time.Second
	maxDelay   = time.Minute
)

// WorkQueue makes the calls that go on beside a loop, for each key one at a time. After a
// failure the next call for the key has to wait, longer each time. The zero value is ready.
// Safe for concurrent use.
type WorkQueue[K comparable] struct {
	// Ended, if not nil, is called when a call has ended during which somebody has found its key
	// busy.
	Ended func()

	underway sync.WaitGroup

	mu sync.Mutex
	// busy has the keys for which a call is under way, and whether somebody has found that.
	busy  map[K]bool
	later map[K]*delay
}

// delay is how long calls about a key are put off.
type delay struct {
	until   time.Time
	backoff retry.Backoff
}

// Go makes a call for key in the background, unless a call for key is under way or has to
// wait. If the call returns an error, the next one has to wait.
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

// end notes that a call for key has ended, and reports whether somebody has found it busy.
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

// find reports whether a call for key is under way, and notes that somebody wants to know. It is
// for callers that hold mu.
func (c *WorkQueue[K]) find(key K) bool {
	_, busy := c.busy[key]
	if busy {
		c.busy[key] = true
	}
	return busy
}

// Wait returns when no call is under way.
func (c *WorkQueue[K]) Wait() { c.underway.Wait() }

// Busy reports whether a call for key is under way.
func (c *WorkQueue[K]) Busy(key K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(key)
}

// Due reports whether a call for key may be made now and need not wait.
func (c *WorkQueue[K]) Due(key K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.due(key)
}

func (c *WorkQueue[K]) due(key K) bool {
	d, delayed := c.later[key]
	return !delayed || !time.Now().Before(d.until)
}

// PutOff makes the next call for key wait, longer each time.
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

// Settled forgets how often calls for key were put off.
func (c *WorkQueue[K]) Settled(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.later, key)
}
