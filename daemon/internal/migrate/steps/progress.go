// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"fmt"
	"sync"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// progressTracker has the state of running migrations that is only in memory: the shown progress,
// the options of a copy, the beginning of a pause. Nothing depends on it after a restart.
type progressTracker struct {
	mu      sync.Mutex
	byID    map[string]shownProgress
	updates map[string]api.MigrationUpdate
	pauses  map[string]pause
	change  func(migrationID string)
	now     func() time.Time
}

type shownProgress struct {
	Progress

	since time.Time
}

// pause is the time of a pause. Unknown times are zero.
type pause struct{ began, ended time.Time }

func newProgressTracker(change func(migrationID string), now func() time.Time) *progressTracker {
	return &progressTracker{
		byID: map[string]shownProgress{}, updates: map[string]api.MigrationUpdate{}, pauses: map[string]pause{},
		change: change, now: now,
	}
}

func (t *progressTracker) set(id string, p Progress) {
	t.mu.Lock()
	before, known := t.byID[id]
	if !known || before.Phase != p.Phase || before.BytesDone != p.BytesDone {
		before.since = t.now()
	}
	t.byID[id] = shownProgress{p, before.since}
	t.mu.Unlock()
	t.change(id)
}

func (t *progressTracker) get(id string) (shownProgress, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.byID[id]
	return p, ok
}

// goesOn is called when a copy begins, or continues an earlier one.
func (t *progressTracker) goesOn(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p, known := t.byID[id]; known {
		t.byID[id] = shownProgress{p.Progress, t.now()}
	}
}

func (t *progressTracker) clear(id string) {
	t.mu.Lock()
	delete(t.byID, id)
	t.mu.Unlock()
}

// update returns the changes to the options of a migration's copy, and reads them if they are not
// in memory.
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
	if t.pauses[id].began.IsZero() {
		t.pauses[id] = pause{began: at}
	}
}

// pauseEnded records the end of a pause that has a known beginning.
func (t *progressTracker) pauseEnded(id string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p, known := t.pauses[id]; known {
		t.pauses[id] = pause{p.began, at}
	}
}

// takePause returns the times of the pause and forgets them.
func (t *progressTracker) takePause(id string) pause {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pauses[id]
	delete(t.pauses, id)
	return p
}

func noProgress(idle time.Duration) string {
	return fmt.Sprintf("no progress for %s", idle.Round(time.Second))
}

func jobPhase(s *Spec) string {
	if s.Method == MethodMirror {
		return "mirror"
	}
	return "fold"
}
