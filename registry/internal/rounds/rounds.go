// SPDX-License-Identifier: Apache-2.0

// Package rounds is how the registry looks after what takes long: it looks at all of
// it now and then, and what it has hosts do meanwhile goes on beside the rounds. It
// must not know what is looked after.
package rounds

import (
	"context"
	"log/slog"
	"time"
)

// DefaultEvery is how often a Task looks.
const DefaultEvery = time.Second

// Task looks after something until it is told to end. It is a service.Task.
type Task struct {
	name  string
	every time.Duration
	look  func(context.Context) error
	wait  func()
	log   *slog.Logger
	ready chan struct{}
}

// NewTask returns a task that does nothing before it runs. Name says in the plural what
// is looked after. Look brings all of it as far as it can be brought now, and is
// called again whatever it returns; wait returns when the calls that it began are over.
// Every is DefaultEvery where it is 0.
func NewTask(name string, every time.Duration, log *slog.Logger, look func(context.Context) error, wait func()) *Task {
	if every == 0 {
		every = DefaultEvery
	}
	return &Task{name: name, every: every, look: look, wait: wait, log: log, ready: make(chan struct{})}
}

// String names the task.
func (t *Task) String() string { return t.name }

// Every is how often the task looks.
func (t *Task) Every() time.Duration { return t.every }

// Ready implements service.Task.
func (t *Task) Ready() <-chan struct{} { return t.ready }

// Run looks in every round until ctx ends. What hosts do then goes on.
func (t *Task) Run(ctx context.Context) error {
	close(t.ready)
	defer t.wait()
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	told := false
	for {
		err := t.look(ctx)
		if err != nil && ctx.Err() == nil && !told {
			// Once: the next rounds will say the same.
			t.log.Warn(t.name+" cannot be looked after; they are tried again", "err", err)
		}
		told = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
