// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/volferry/volferry/test/bench/load"
)

// driven is what a measurement of clients came to.
type driven struct {
	Changes, Cycles int
	p50, p99, p999  time.Duration
	usage
}

func (d driven) perSecond() float64 { return float64(d.Changes) / d.wall.Seconds() }

// drive has each client make changes, at perSecond of all of them together, or
// with 0 as fast as they can.
func (b *bench) drive(ctx context.Context, clients []*client, perSecond int, length time.Duration) (driven, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var (
		w    = load.NewWindow(length)
		done = make(chan struct{})
		all  load.Result
		err  error
	)
	go func() {
		defer close(done)
		if all, err = load.Drive(ctx, clients, perSecond, w); err != nil {
			stop(err) // nobody has to wait for the end of the window
		}
	}()
	used, usageErr := b.usageWithin(ctx, w)
	<-done
	if err != nil {
		return driven{}, err
	}
	return driven{
		Changes: all.Changes, Cycles: all.Cycles, p50: all.Quantile(0.5), p99: all.Quantile(0.99), p999: all.Quantile(0.999), usage: used,
	}, usageErr
}
