// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// load is what a measurement of clients came to.
type load struct {
	changes, cycles int
	latencies       []time.Duration // sorted
	usage
}

// drive has each client make changes, at perSecond of all of them together, or
// with 0 each as soon as the last one was answered. What a change took is counted
// from when it was due, so that one that waits for another's answer counts too.
func (b *bench) drive(ctx context.Context, clients []*client, perSecond int, length time.Duration) (load, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var (
		wg    sync.WaitGroup
		w     = newWindow(length)
		each  = make([]load, len(clients))
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
			if err := c.drive(ctx, w, due, &each[i]); err != nil {
				stop(err)
			}
		})
	}
	used, err := b.usageWithin(ctx, w)
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return load{}, cause
	}
	total := load{usage: used}
	for _, l := range each {
		total.changes += l.changes
		total.cycles += l.cycles
		total.latencies = append(total.latencies, l.latencies...)
	}
	slices.Sort(total.latencies)
	return total, err
}

// drive makes changes until the window ends, and then those that end the cycle, so
// that the next measurement finds the volume free.
func (c *client) drive(ctx context.Context, w window, due func(int) time.Time, l *load) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		begin := time.Now()
		if at := due(n); !at.IsZero() && begin.Before(w.end) {
			timer.Reset(at.Sub(begin))
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			begin = at
		}
		if !begin.Before(w.end) && c.step == 0 {
			return nil
		}
		cycles := c.cycles
		if err := c.change(); err != nil {
			return err
		}
		if end := time.Now(); w.has(end) {
			l.changes++
			l.cycles += c.cycles - cycles
			l.latencies = append(l.latencies, end.Sub(begin))
		}
	}
	return nil
}

// quantile returns the latency that the part q stayed below.
func (l load) quantile(q float64) time.Duration {
	if len(l.latencies) == 0 {
		return 0
	}
	return l.latencies[min(len(l.latencies)-1, int(q*float64(len(l.latencies))))]
}

func (l load) perSecond() float64 { return float64(l.changes) / l.wall.Seconds() }
