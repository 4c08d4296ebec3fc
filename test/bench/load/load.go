// SPDX-License-Identifier: Apache-2.0

// Package load has many clients make changes at once, as fast as they can or at a
// rate, and says what each change took. It owns when a change is due and which of
// them count, and must not know what is changed, or where.
package load

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Client makes changes, one after the other. Some number of them is a cycle, after
// which what it changes is as it was.
type Client interface {
	// Change makes the next change and returns once it is durable.
	Change() error
	// Idle says that no cycle is begun.
	Idle() bool
}

// Result is what the changes of all clients within a window came to.
type Result struct {
	Changes, Cycles int
	Latencies       []time.Duration // sorted
}

// Quantile returns the latency that the part q stayed below, 0 if there is none.
func (r Result) Quantile(q float64) time.Duration {
	if len(r.Latencies) == 0 {
		return 0
	}
	return r.Latencies[min(len(r.Latencies)-1, int(q*float64(len(r.Latencies))))]
}

// Drive has each client make changes until the window ends, at perSecond of all of
// them together, or with 0 each as soon as the last one was answered. What a change
// took is counted from when it was due, so that one that waits for another's answer
// counts too. The first error of a client ends all.
func Drive[C Client](ctx context.Context, clients []C, perSecond int, w Window) (Result, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var (
		wg    sync.WaitGroup
		each  = make([]Result, len(clients))
		begin = time.Now()
	)
	for i, c := range clients {
		due := func(int) time.Time { return time.Time{} }
		if perSecond > 0 {
			gap := time.Second * time.Duration(len(clients)) / time.Duration(perSecond)
			first := begin.Add(gap * time.Duration(i) / time.Duration(len(clients)))
			due = func(n int) time.Time { return first.Add(gap * time.Duration(n)) }
		}
		wg.Go(func() {
			if err := drive(ctx, c, w, due, &each[i]); err != nil {
				stop(err)
			}
		})
	}
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return Result{}, cause
	}
	var total Result
	for _, r := range each {
		total.Changes += r.Changes
		total.Cycles += r.Cycles
		total.Latencies = append(total.Latencies, r.Latencies...)
	}
	slices.Sort(total.Latencies)
	return total, nil
}

// drive makes changes until the window ends, and then those that end the cycle, so
// that the next measurement finds everything as it was.
func drive(ctx context.Context, c Client, w Window, due func(int) time.Time, r *Result) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		begin := time.Now()
		if at := due(n); !at.IsZero() && begin.Before(w.End) {
			timer.Reset(at.Sub(begin))
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			begin = at
		}
		if !begin.Before(w.End) && c.Idle() {
			return nil
		}
		if err := c.Change(); err != nil {
			return err
		}
		if end := time.Now(); w.has(end) {
			r.Changes++
			if c.Idle() {
				r.Cycles++
			}
			r.Latencies = append(r.Latencies, end.Sub(begin))
		}
	}
	return nil
}
