// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"sync"
	"time"
)

const (
	// defaultWorkers keep 8 MiB in flight: enough for an array with a latency of milliseconds, too
	// little to starve a guest.
	defaultWorkers = 8
	maxWorkers     = 16

	// depthEvery is how often an adaptive depth checks the rate. Each interval contains a flush of
	// dst (saveInterval).
	depthEvery = time.Second
	depthStep  = 4
	// A larger depth must raise the rate by moreIsWorth. A smaller depth, which shortens the queue
	// for others, must keep lessIsWorth. Changes in between are a disk's noise.
	moreIsWorth, lessIsWorth = 1.1, 0.95
	depthRest                = 10
)

// depth is the number of chunks in flight, one for each worker. For parallel storage with a long
// latency, such as a network, an adaptive depth tries more. It never goes below defaultWorkers:
// slowing down for a guest is the task of a Pacer.
type depth struct {
	most int // existing workers

	mu      sync.Mutex
	changed sync.Cond
	now     int // workers that take chunks
	over    bool

	adaptive bool
	looked   time.Time
	moved    int64 // bytes since then
	step     int
	trying   bool    // since the last check
	before   float64 // the rate before the trial, in bytes per second
	rest     int     // checks until the next trial
}

func fixedDepth(workers int) *depth {
	d := &depth{most: workers, now: workers}
	d.changed.L = &d.mu
	return d
}

func adaptiveDepth() *depth {
	d := fixedDepth(maxWorkers)
	d.now, d.adaptive, d.step, d.looked = defaultWorkers, true, depthStep, time.Now()
	return d
}

func (d *depth) enter(worker int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for worker >= d.now && !d.over {
		d.changed.Wait()
	}
	return !d.over
}

func (d *depth) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	d.changed.Broadcast()
}

func (d *depth) done(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.moved += bytes
	if elapsed := time.Since(d.looked); d.adaptive && elapsed >= depthEvery {
		d.look(float64(d.moved) / elapsed.Seconds())
		d.looked, d.moved = time.Now(), 0
	}
}

func (d *depth) look(rate float64) {
	switch {
	case d.trying:
		d.trying = false
		worth := moreIsWorth
		if d.step < 0 {
			worth = lessIsWorth
		}
		if rate < worth*d.before {
			d.change(-d.step)
			d.step, d.rest = -d.step, depthRest
		}
	case d.rest > 0:
		d.rest--
	default:
		if next := d.now + d.step; next < defaultWorkers || next > d.most {
			d.step = -d.step
		}
		d.before, d.trying = rate, true
		d.change(d.step)
	}
}

func (d *depth) change(step int) {
	d.now += step
	d.changed.Broadcast()
}
