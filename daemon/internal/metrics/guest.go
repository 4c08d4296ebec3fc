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
	sampleEvery   = time.Second
	sampleTimeout = 5 * time.Second
)

// guestWrites sums up the writes of guests with moving volumes. The hypervisor reports a count and
// a total time, not single latencies, so the metric is a summary without quantiles.
type guestWrites struct {
	disks func() []GuestDisk
	stats func(ctx context.Context, instanceID, target string) (*hv.DiskStats, error)
	last  map[GuestDisk]hv.DiskStats

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

// sample reads each disk and adds its writes since the last sample. The first read of a disk adds
// nothing.
func (g *guestWrites) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	now := map[GuestDisk]hv.DiskStats{}
	for _, d := range g.disks() {
		before, known := g.last[d]
		st, err := g.stats(ctx, d.InstanceID, d.Target)
		switch {
		case errors.Is(err, hv.ErrNotActive): // the counters of the guest's next process begin at 0
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

// add adds writes. It ignores counters that have decreased: they belong to a new process.
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
