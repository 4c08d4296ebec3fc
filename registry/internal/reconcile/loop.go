// SPDX-License-Identifier: Apache-2.0

// Package reconcile runs loops for long work. A loop periodically reads the stored state, does the
// next possible steps, and makes calls to hosts concurrently. Only the store keeps state between
// two rounds, so a restarted registry continues.
package reconcile

import (
	"context"
	"log/slog"
	"time"
)

// DefaultEvery is the default interval of a Loop.
const DefaultEvery = time.Second

// Loop repeatedly calls its function reconcile until the context ends. It is a service.Task.
type Loop struct {
	name      string
	every     time.Duration
	reconcile func(context.Context) error
	wait      func()
	changed   func() <-chan struct{}
	soon      chan struct{}
	log       *slog.Logger
	ready     chan struct{}
}

// NewLoop returns a loop; call Run to start it. name is the loop's objects in the plural, such as
// "drains". reconcile advances all objects as far as possible now, also after an error. wait
// returns when the calls that reconcile started have ended. An interval of 0 means DefaultEvery.
func NewLoop(name string, every time.Duration, log *slog.Logger, reconcile func(context.Context) error, wait func()) *Loop {
	if every == 0 {
		every = DefaultEvery
	}
	return &Loop{name: name, every: every, reconcile: reconcile, wait: wait, log: log, ready: make(chan struct{}), soon: make(chan struct{}, 1)}
}

// LookAfter makes the loop reconcile also at each change of the stored state. changed must return
// a channel that the next change closes. Call LookAfter before Run.
func (l *Loop) LookAfter(changed func() <-chan struct{}) { l.changed = changed }

// LookSoon makes the loop reconcile at once, or once more if it is reconciling now.
func (l *Loop) LookSoon() {
	select {
	case l.soon <- struct{}{}:
	default: // another look is already pending
	}
}

// String returns the name.
func (l *Loop) String() string { return l.name }

// Every returns the interval.
func (l *Loop) Every() time.Duration { return l.every }

// Ready implements service.Task.
func (l *Loop) Ready() <-chan struct{} { return l.ready }

// Run reconciles until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	close(l.ready)
	defer l.wait()
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	logged := false
	for {
		// Get the channel first, to miss no change.
		var changed <-chan struct{}
		if l.changed != nil {
			changed = l.changed()
		}
		err := l.reconcile(ctx)
		if err != nil && ctx.Err() == nil && !logged {
			// Log it once: the next looks will fail with the same error.
			l.log.Warn(l.name+" cannot be looked after; they are tried again", "err", err)
		}
		logged = err != nil
		select {
		case <-changed:
		case <-l.soon:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
