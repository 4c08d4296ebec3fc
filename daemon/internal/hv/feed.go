// SPDX-License-Identifier: Apache-2.0

package hv

import (
	"context"
	"sync"
)

const feedDepth = 64

// Feed sends the events of a Hypervisor to its subscribers as Hypervisor.Events promises. The zero
// Feed is usable and down. A Feed is safe for concurrent use, and Publish never waits for a
// subscriber.
type Feed struct {
	mu   sync.Mutex
	up   bool
	subs map[chan Event]struct{}
}

// Publish sends an event to every subscriber. EventConnected and EventDisconnected also change the
// result of Up.
func (f *Feed) Publish(ev Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch ev.Kind {
	case EventConnected:
		f.up = true
	case EventDisconnected:
		f.up = false
	case EventLifecycle, EventIOError, EventBlockJob, EventDeviceRemoved:
	}
	for sub := range f.subs {
		f.push(sub, ev)
	}
}

// push sends ev without blocking: only push sends, under mu, and it first makes room.
func (f *Feed) push(sub chan Event, ev Event) {
	if len(sub) >= cap(sub)-1 {
		drain(sub)
		if f.up && ev.Kind != EventConnected {
			sub <- Event{Kind: EventConnected}
		}
	}
	sub <- ev
}

func drain(sub chan Event) {
	for {
		select {
		case <-sub:
		default:
			return
		}
	}
}

// Subscribe returns a subscription as promised by Hypervisor.Events.
func (f *Feed) Subscribe(ctx context.Context) <-chan Event {
	sub := make(chan Event, feedDepth)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.up {
		sub <- Event{Kind: EventConnected}
	}
	if f.subs == nil {
		f.subs = make(map[chan Event]struct{})
	}
	f.subs[sub] = struct{}{}
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.subs, sub)
		close(sub)
	})
	return sub
}

// Up reports whether the last connection event was EventConnected.
func (f *Feed) Up() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.up
}
