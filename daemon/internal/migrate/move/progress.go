// SPDX-License-Identifier: Apache-2.0

package move

import (
	"fmt"
	"sync"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// ProgressTracker has the state of running migrations that is only in memory. Nothing depends on
// it after a restart.
type ProgressTracker struct {
	mu      sync.Mutex
	byID    map[string]ShownProgress
	updates map[string]api.MigrationUpdate
	pauses  map[string]Pause
	change  func(migrationID string)
	now     func() time.Time
}

// ShownProgress is a progress with the time of its last change.
type ShownProgress struct {
	Progress

	since time.Time
}

// Pause has the times of a pause, zero if unknown.
type Pause struct{ Began, Ended time.Time }

func newProgressTracker(change func(migrationID string), now func() time.Time) *ProgressTracker {
	return &ProgressTracker{
		byID: map[string]ShownProgress{}, updates: map[string]api.MigrationUpdate{}, pauses: map[string]Pause{},
		change: change, now: now,
	}
}

// Set stores a migration's progress, and reports the change.
func (t *ProgressTracker) Set(id string, p Progress) {
	t.mu.Lock()
	before, known := t.byID[id]
	if !known || before.Phase != p.Phase || before.BytesDone != p.BytesDone {
		before.since = t.now()
	}
	t.byID[id] = ShownProgress{p, before.since}
	t.mu.Unlock()
	t.change(id)
}

// Get returns the last progress; false if no op moves bytes.
func (t *ProgressTracker) Get(id string) (ShownProgress, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.byID[id]
	return p, ok
}

// GoesOn records that a copy begins, or continues an earlier copy.
func (t *ProgressTracker) GoesOn(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p, known := t.byID[id]; known {
		t.byID[id] = ShownProgress{p.Progress, t.now()}
	}
}

// Clear removes the progress of a migration.
func (t *ProgressTracker) Clear(id string) {
	t.mu.Lock()
	delete(t.byID, id)
	t.mu.Unlock()
}

func (t *ProgressTracker) update(id string, read func() api.MigrationUpdate) api.MigrationUpdate {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.updates[id]; !known {
		t.updates[id] = read()
	}
	return t.updates[id]
}

func (t *ProgressTracker) setUpdate(id string, in api.MigrationUpdate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.updates[id] = in
}

// PausedAt records when the guest's pause began, unless that is recorded.
func (t *ProgressTracker) PausedAt(id string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pauses[id].Began.IsZero() {
		t.pauses[id] = Pause{Began: at}
	}
}

// PauseEnded records the end of a pause that has a known beginning.
func (t *ProgressTracker) PauseEnded(id string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p, known := t.pauses[id]; known {
		t.pauses[id] = Pause{p.Began, at}
	}
}

// TakePause removes and returns the times of the pause.
func (t *ProgressTracker) TakePause(id string) Pause {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pauses[id]
	delete(t.pauses, id)
	return p
}

// NoProgress describes a copy or job without progress.
func NoProgress(idle time.Duration) string {
	return fmt.Sprintf("no progress for %s", idle.Round(time.Second))
}

// JobPhase returns the name of the phase with the migration's block job.
func JobPhase(s *Spec) string {
	if s.Method == MethodMirror {
		return "mirror"
	}
	return "fold"
}
