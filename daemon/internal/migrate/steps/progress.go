// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"sync"
	"time"
)

// progressTracker keeps in memory what is known of running migrations: the progress that is
// shown, the bandwidth cap, when a pause began. Nothing depends on it after a restart.
type progressTracker struct {
	mu     sync.Mutex
	byID   map[string]Progress
	caps   map[string]int64
	pauses map[string]time.Time
	change func(migrationID string)
}

func newProgressTracker(change func(migrationID string)) *progressTracker {
	return &progressTracker{
		byID: map[string]Progress{}, caps: map[string]int64{}, pauses: map[string]time.Time{}, change: change,
	}
}

func (t *progressTracker) set(id string, p Progress) {
	t.mu.Lock()
	t.byID[id] = p
	t.mu.Unlock()
	t.change(id)
}

func (t *progressTracker) get(id string) (Progress, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.byID[id]
	return p, ok
}

func (t *progressTracker) clear(id string) {
	t.mu.Lock()
	delete(t.byID, id)
	t.mu.Unlock()
}

// bandwidth is the cap of a migration's copy. It is read if it is not known yet.
func (t *progressTracker) bandwidth(id string, read func() int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.caps[id]; !known {
		t.caps[id] = read()
	}
	return t.caps[id]
}

func (t *progressTracker) setBandwidth(id string, bytesPerSecond int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.caps[id] = bytesPerSecond
}

func (t *progressTracker) pausedAt(id string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pauses[id].IsZero() {
		t.pauses[id] = at
	}
}

// takePausedAt returns when the pause began and forgets it; zero if unknown.
func (t *progressTracker) takePausedAt(id string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.pauses[id]
	delete(t.pauses, id)
	return at
}
