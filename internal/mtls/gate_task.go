// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"context"
	"time"
)

const (
	// sweepEvery bounds how long a request continues after its caller has lost access.
	sweepEvery  = time.Second
	remindEvery = 12 * time.Hour
)

// Run ends requests of callers that have lost access, and warns before the server certificate
// ends. It returns when ctx ends.
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

// Ready returns a closed channel.
func (g *Gate) Ready() <-chan struct{} {
	ready := make(chan struct{})
	close(ready)
	return ready
}

// String names the task.
func (g *Gate) String() string { return "TLS gate" }
