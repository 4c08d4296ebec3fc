// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/volferry/volferry/ctl/internal/render"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
	"github.com/volferry/volferry/internal/routes"
)

const (
	// tellAfter is how long nothing is said of a wait: most are over by then.
	tellAfter = 3 * time.Second
	// tellEvery is how often it is looked, and tellAgain how often the same wait is
	// told once more.
	tellEvery = 5 * time.Second
	tellAgain = 30 * time.Second
)

// waitTeller says what an op waits for that shows no progress, and since when.
type waitTeller struct {
	// ask is how the op stands, nil if that is not known.
	ask func(context.Context) *api.Op
	// unknown is what is waited for while it is not known; "" is nothing.
	unknown string
	say     func(line string)

	// told is what was said last, at saidAt.
	told   string
	saidAt time.Time
	// step is where the op was at the last look, and since when.
	step  string
	since time.Time
}

// run looks now and then until ctx ends.
func (t *waitTeller) run(ctx context.Context) {
	t.since = time.Now()
	for pause := tellAfter; retry.Sleep(ctx, pause) == nil; pause = tellEvery {
		op := t.ask(ctx)
		if ctx.Err() == nil {
			t.look(op, time.Now())
		}
	}
}

// look says what the op waits for, if that is news or has lasted.
func (t *waitTeller) look(op *api.Op, now time.Time) {
	what, since, rest := t.unknown, t.since, "."
	if op != nil {
		rest = "; Ctrl-C leaves it running."
		if op.Step != t.step {
			t.step, t.since = op.Step, now
		}
		what, since = waitingFor(op), t.since
		if op.WaitingSince != nil {
			since = *op.WaitingSince
		}
		if opOver(op.State) {
			what = ""
		}
	}
	lasts := now.Sub(since)
	if what == "" || lasts < tellAfter || what == t.told && now.Sub(t.saidAt) < tellAgain {
		return
	}
	t.told, t.saidAt = what, now
	t.say(fmt.Sprintf("Waiting for %s (%s)%s", what, render.Duration(lasts.Truncate(time.Second)), rest))
}

// waitingFor is what an op waits for, as a person would say it; "" for one that works
// and has nothing to wait for.
func waitingFor(op *api.Op) string {
	switch op.WaitingFor {
	case "registry":
		return "the registry, which does not answer"
	case "hypervisor":
		return "libvirt, which does not answer"
	case "guest":
		return "the guest, which still has the disk"
	case "turn":
		if op.Behind != "" {
			return "operation " + op.Behind + ", which was asked for before"
		}
		return "another operation, which was asked for before"
	case "":
		return stepWaits[op.Step]
	}
	return op.WaitingFor
}

// stepWaits are the steps of ops that wait for a guest in the middle of their work, of
// stop, shelve and detach.
var stepWaits = map[string]string{
	"power_off":   "the guest to shut down",
	"stop":        "the guest to shut down",
	"detach_live": "the guest to let go of the disk",
}

// tellWaits says on stderr what the op waits for, from a few seconds on and until stop
// is called. Unknown is said as long as nothing is known of it.
func (s *session) tellWaits(ctx context.Context, d *display, opID, unknown string) (stop func()) {
	if s.quiet || s.progress == progressNone {
		return func() {}
	}
	t := waitTeller{
		ask: func(ctx context.Context) *api.Op {
			op := new(api.Op)
			if err := s.client.Do(ctx, routes.ShowOp.Method, routes.ShowOp.PathOf(opID), nil, op); err != nil {
				return nil
			}
			return op
		},
		unknown: unknown,
		say:     d.say,
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t.run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}
