// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"context"
	"time"
)

const (
	// sweepEvery bounds how long a request that lasts outlives the right of its
	// caller.
	sweepEvery = time.Second
	// remindEvery is how often the log says that the server certificate ends.
	remindEvery = 12 * time.Hour
)

// Run ends requests whose callers are not let in any more, and warns before the server
// certificate ends, until ctx ends. With Ready and String the gate is a task of the daemon.
func (g *Gate) Run(ctx context.Context) error {
	tick, remind := time.NewTicker(sweepEvery), time.NewTicker(remindEvery)
	defer tick.Stop()
	defer remind.Stop()
	g.remind()
	for {
		select {
		case <-tick.C:
			g.sweep()
		case <-remind.C:
			g.remind()
		case <-ctx.Done():
			return nil
		}
	}
}

func (g *Gate) remind() {
	if err := g.ending(); err != nil {
		g.log.Warn("renew the server certificate", "err", err)
	}
}

// sweep looks at every request that is being answered.
func (g *Gate) sweep() {
	now, denied, roots := g.Now(), *g.denied.get(), g.roots.get()
	for _, r := range g.active.all() {
		err := allowed(r.id, now, denied)
		if err == nil && r.of != roots {
			_, err = roots.identify(r.cert, now)
		}
		if err != nil {
			r.end()
		}
	}
	roots.verified.forget(now)
}

// Ready is closed from the start: a gate is ready when it is made.
func (g *Gate) Ready() <-chan struct{} {
	ready := make(chan struct{})
	close(ready)
	return ready
}

// String names the task.
func (g *Gate) String() string { return "TLS gate" }
