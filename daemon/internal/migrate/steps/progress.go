// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"sync"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// progressTracker keeps in memory what is known of running migrations: the progress that is
// shown, what was changed of the copy, when a pause began. Nothing depends on it after a restart.
type progressTracker struct {
	mu      sync.Mutex
	byID    map[string]Progress
	updates map[string]api.MigrationUpdate
	pauses  map[string]time.Time
	change  func(migrationID string)
}

func newProgressTracker(change func(migrationID string)) *progressTracker {
	return &progressTracker{
		byID: map[string]Progress{}, updates: map[string]api.MigrationUpdate{}, pauses: map[string]time.Time{}, change: change,
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

// update is what was changed of a migration's copy. It is read if it is not known yet.
func (t *progressTracker) update(id string, read func() api.MigrationUpdate) api.MigrationUpdate {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.updates[id]; !known {
		t.updates[id] = read()
	}
	return t.updates[id]
}

func (t *progressTracker) setUpdate(id string, in api.MigrationUpdate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.updates[id] = in
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
