// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// GuestDisk is a disk of a guest.
type GuestDisk struct {
	InstanceID string
	Target     string
}

const (
	// sampleEvery is how often the guests' counters are read.
	sampleEvery = time.Second
	// sampleTimeout bounds one round.
	sampleTimeout = 5 * time.Second
)

// guestWrites adds up the writes of guests whose volumes move. The hypervisor
// tells a number and a sum, no single latencies, so there is a mean over any
// time but no distribution: a summary without quantiles.
type guestWrites struct {
	disks func() []GuestDisk
	stats func(ctx context.Context, instanceID, target string) (*hv.DiskStats, error)
	// last are the counters of the round before. Of run alone.
	last map[GuestDisk]hv.DiskStats

	mu     sync.Mutex
	writes uint64
	total  time.Duration
}

func (g *guestWrites) run(ctx context.Context) error {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		g.sample(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// sample reads each disk and counts what it wrote since the round before. The
// first look at a disk counts nothing.
func (g *guestWrites) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	now := map[GuestDisk]hv.DiskStats{}
	for _, d := range g.disks() {
		before, known := g.last[d]
		st, err := g.stats(ctx, d.InstanceID, d.Target)
		switch {
		case errors.Is(err, hv.ErrNotActive): // its next process counts from 0
		case err != nil && known:
			now[d] = before
		case err == nil:
			now[d] = *st
			if known {
				g.add(st.WriteRequests-before.WriteRequests, st.WriteTime-before.WriteTime)
			}
		}
	}
	g.last = now
}

// add counts writes. Counters that went back are those of another process.
func (g *guestWrites) add(writes int64, took time.Duration) {
	if writes < 0 || took < 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writes += uint64(writes)
	g.total += took
}

func (g *guestWrites) totals() (writes uint64, total time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.writes, g.total
}
