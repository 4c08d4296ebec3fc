// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"sync"
	"time"
)

// firstPause and longestPause are before a call is made again that got no answer, or
// was refused for the moment.
const (
	firstPause   = 2 * time.Second
	longestPause = time.Minute
)

// WorkQueue makes the calls that go on beside a loop: for each key one at a time. A call
// that failed is made again after a pause, which grows each time. The zero value is ready.
// Safe for concurrent use.
type WorkQueue[K comparable] struct {
	underway sync.WaitGroup

	mu    sync.Mutex
	busy  map[K]bool
	later map[K]pause
}

type pause struct {
	until time.Time
	next  time.Duration
}

// Go makes a call about key in the background, unless one is on its way or its turn
// has not come. If it returns an error the next one is put off.
func (c *WorkQueue[K]) Go(key K, do func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[key] || !c.due(key) {
		return
	}
	if c.busy == nil {
		c.busy = map[K]bool{}
	}
	c.busy[key] = true
	c.underway.Go(func() {
		err := do()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.busy, key)
		if err != nil {
			c.putOff(key)
		}
	})
}

// Wait returns when no call is on its way.
func (c *WorkQueue[K]) Wait() { c.underway.Wait() }

// Busy says whether a call about key is on its way.
func (c *WorkQueue[K]) Busy(key K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busy[key]
}

// Due says whether the turn of a call about key has come.
func (c *WorkQueue[K]) Due(key K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.due(key)
}

func (c *WorkQueue[K]) due(key K) bool {
	p, waits := c.later[key]
	return !waits || !time.Now().Before(p.until)
}

// PutOff makes the next call about key wait, longer each time.
func (c *WorkQueue[K]) PutOff(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putOff(key)
}

func (c *WorkQueue[K]) putOff(key K) {
	if c.later == nil {
		c.later = map[K]pause{}
	}
	next := max(c.later[key].next, firstPause)
	c.later[key] = pause{until: time.Now().Add(next), next: min(2*next, longestPause)}
}

// Settled forgets how often calls about key were put off.
func (c *WorkQueue[K]) Settled(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.later, key)
}
