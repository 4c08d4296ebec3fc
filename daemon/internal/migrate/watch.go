// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"sync"
)

// watchers wakes those who follow a migration. Nobody is ever waited for: a
// slow follower sees fewer, newer states.
type watchers struct {
	mu   sync.Mutex
	subs map[chan string]string // to the migration that is followed, "" for all
}

func newWatchers() *watchers { return &watchers{subs: map[chan string]string{}} }

// maxPending bounds the ids that wait for a follower of all migrations.
const maxPending = 1024

func (w *watchers) notify(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch, only := range w.subs {
		if only == "" || only == id {
			select {
			case ch <- id:
			default: // it has a wake-up to come, and will look at the newest state
			}
		}
	}
}

// subscribe registers a channel that carries the ids that change, and closes it
// when ctx ends.
func (w *watchers) subscribe(ctx context.Context, only string, ch chan string) <-chan string {
	w.mu.Lock()
	w.subs[ch] = only
	w.mu.Unlock()
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.subs, ch)
		close(ch)
	})
	return ch
}

// all yields the id of every migration that changes, until ctx ends.
func (w *watchers) all(ctx context.Context) <-chan string {
	return w.subscribe(ctx, "", make(chan string, maxPending))
}

// changes yields at once, and again after every change of one migration, until
// ctx ends.
func (w *watchers) changes(ctx context.Context, id string) <-chan string {
	ch := make(chan string, 1)
	ch <- id
	return w.subscribe(ctx, id, ch)
}
