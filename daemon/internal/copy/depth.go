// SPDX-License-Identifier: Apache-2.0

package copy

import (
	"sync"
	"time"
)

const (
	// defaultWorkers chunks are in flight: 8 MiB, enough for an array that answers within
	// milliseconds, too little to starve a guest.
	defaultWorkers = 8
	// maxWorkers bounds what is in flight to 16 MiB.
	maxWorkers = 16

	// depthEvery is how often an adaptive depth looks at the rate. In each look is a flush of dst
	// (saveInterval).
	depthEvery = time.Second
	// depthStep is by how many chunks a depth is tried that is more, or less.
	depthStep = 4
	// More in flight is worth it with a rate that is moreIsWorth times as high, and less with
	// lessIsWorth times the rate: what others wait for behind it counts too. In between is the
	// noise of a disk.
	moreIsWorth, lessIsWorth = 1.1, 0.95
	// depthRest is for how many looks a depth stays after another one was not worth it.
	depthRest = 10
)

// depth is how many chunks are in flight: that many workers take one, each when it has done the one
// before. An adaptive depth tries to have more of them, up to maxWorkers, where each takes long and
// the storage does several at once, as over a network: it goes on for as long as that is worth it,
// and back where it is not. It never has less than defaultWorkers: to give way to a guest is the
// matter of a Pacer.
type depth struct {
	most int // workers that there are

	mu      sync.Mutex
	changed sync.Cond
	now     int // workers that take chunks
	over    bool

	adaptive bool
	looked   time.Time
	moved    int64   // bytes, since then
	step     int     // what is tried, or is tried next
	trying   bool    // since the last look
	before   float64 // the rate before what is tried, in bytes a second
	rest     int     // looks until something is tried
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

// enter waits until the worker of this number, from 0, is to take a chunk. It is false when there
// are no more.
func (d *depth) enter(worker int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for worker >= d.now && !d.over {
		d.changed.Wait()
	}
	return !d.over
}

// end has no worker take another chunk.
func (d *depth) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	d.changed.Broadcast()
}

// done is called with the bytes of each chunk that was done.
func (d *depth) done(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.moved += bytes
	if elapsed := time.Since(d.looked); d.adaptive && elapsed >= depthEvery {
		d.look(float64(d.moved) / elapsed.Seconds())
		d.looked, d.moved = time.Now(), 0
	}
}

// look is a look at the rate since the last one.
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
