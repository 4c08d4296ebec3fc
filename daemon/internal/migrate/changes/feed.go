// SPDX-License-Identifier: Apache-2.0

// Package changes notifies followers of changed migrations.
package changes

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
)

// Feed wakes the followers of migrations. It never waits for a follower: a slow follower sees
// fewer, newer states, and misses no migration.
type Feed struct {
	mu   sync.Mutex
	subs map[*Follower]bool
}

// Follower follows one migration or all. Its Wake has a value if one has changed since the last
// Take.
type Follower struct {
	Wake chan struct{}

	only string          // "" for all
	due  map[string]bool // guarded by the feed's mu
}

// NewFeed makes a Feed.
func NewFeed() *Feed { return &Feed{subs: map[*Follower]bool{}} }

// Notify wakes the followers of a migration.
func (w *Feed) Notify(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for f := range w.subs {
		if f.only == "" || f.only == id {
			f.notify(id)
		}
	}
}

func (f *Follower) notify(id string) {
	f.due[id] = true
	select {
	case f.Wake <- struct{}{}:
	default: // a wake-up is pending
	}
}

// Take returns the migrations that changed since the follower's last Take, in no order.
func (w *Feed) Take(f *Follower) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := slices.Collect(maps.Keys(f.due))
	clear(f.due)
	return ids
}

// Subscribe wakes f from now on, until ctx ends.
func (w *Feed) Subscribe(ctx context.Context, f *Follower) {
	w.mu.Lock()
	w.subs[f] = true
	w.mu.Unlock()
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.subs, f)
	})
}

func (w *Feed) follow(ctx context.Context, f *Follower) iter.Seq[string] {
	w.Subscribe(ctx, f)
	return func(yield func(string) bool) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-f.Wake:
			}
			for _, id := range w.Take(f) {
				if !yield(id) {
					return
				}
			}
		}
	}
}

// NewFollower makes a follower of one migration, or of all if only is empty.
func NewFollower(only string) *Follower {
	return &Follower{only: only, due: map[string]bool{}, Wake: make(chan struct{}, 1)}
}

// All yields the ids of changed migrations from now on, until ctx ends.
func (w *Feed) All(ctx context.Context) iter.Seq[string] {
	return w.follow(ctx, NewFollower(""))
}

// Of yields at once, and again after each change of the migration, until ctx ends.
func (w *Feed) Of(ctx context.Context, id string) iter.Seq[string] {
	f := NewFollower(id)
	f.notify(id)
	return w.follow(ctx, f)
}
