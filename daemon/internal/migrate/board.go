// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"sync"
	"time"
)

// board holds what is known of running migrations in memory: progress for the eye,
// the bandwidth cap, when a pause began. Losing it loses nothing.
type board struct {
	mu     sync.Mutex
	lines  map[string]Progress
	caps   map[string]int64
	pauses map[string]time.Time
	change func(migrationID string)
}

func newBoard(change func(migrationID string)) *board {
	return &board{
		lines: map[string]Progress{}, caps: map[string]int64{}, pauses: map[string]time.Time{}, change: change,
	}
}

func (b *board) set(id string, p Progress) {
	b.mu.Lock()
	b.lines[id] = p
	b.mu.Unlock()
	b.change(id)
}

func (b *board) get(id string) (Progress, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.lines[id]
	return p, ok
}

func (b *board) clear(id string) {
	b.mu.Lock()
	delete(b.lines, id)
	b.mu.Unlock()
}

// bandwidth is the cap of a migration's copy, which is read if it is not known yet.
func (b *board) bandwidth(id string, read func() int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.caps[id]; !known {
		b.caps[id] = read()
	}
	return b.caps[id]
}

func (b *board) setBandwidth(id string, bps int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.caps[id] = bps
}

func (b *board) pausedAt(id string, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pauses[id].IsZero() {
		b.pauses[id] = at
	}
}

// takePausedAt returns when the pause began and forgets it; zero if unknown.
func (b *board) takePausedAt(id string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.pauses[id]
	delete(b.pauses, id)
	return at
}
