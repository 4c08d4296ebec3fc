// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
)

// watchers wakes the followers of migrations. It never waits for a follower: a slow one sees fewer,
// newer states, and misses no migration.
type watchers struct {
	mu   sync.Mutex
	subs map[*follower]bool
}

// follower follows one migration or all. due is guarded by the watchers' mu.
type follower struct {
	only string // the followed migration, "" for all
	due  map[string]bool
	wake chan struct{}
}

func newWatchers() *watchers { return &watchers{subs: map[*follower]bool{}} }

func (w *watchers) notify(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for f := range w.subs {
		if f.only == "" || f.only == id {
			f.notify(id)
		}
	}
}

func (f *follower) notify(id string) {
	f.due[id] = true
	select {
	case f.wake <- struct{}{}:
	default: // a wake-up is pending
	}
}

func (w *watchers) take(f *follower) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := slices.Collect(maps.Keys(f.due))
	clear(f.due)
	return ids
}

// subscribe has f woken from now on, until ctx ends.
func (w *watchers) subscribe(ctx context.Context, f *follower) {
	w.mu.Lock()
	w.subs[f] = true
	w.mu.Unlock()
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.subs, f)
	})
}

// follow yields the ids of changed migrations from now on, until ctx ends.
func (w *watchers) follow(ctx context.Context, f *follower) iter.Seq[string] {
	w.subscribe(ctx, f)
	return func(yield func(string) bool) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-f.wake:
			}
			for _, id := range w.take(f) {
				if !yield(id) {
					return
				}
			}
		}
	}
}

func newFollower(only string) *follower {
	return &follower{only: only, due: map[string]bool{}, wake: make(chan struct{}, 1)}
}

func (w *watchers) all(ctx context.Context) iter.Seq[string] {
	return w.follow(ctx, newFollower(""))
}

// changes yields at once, and again after each change of one migration, until ctx ends.
func (w *watchers) changes(ctx context.Context, id string) iter.Seq[string] {
	f := newFollower(id)
	f.notify(id)
	return w.follow(ctx, f)
}
