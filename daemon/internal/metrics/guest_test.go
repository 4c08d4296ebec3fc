// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// round is the result of one read of the guest's disk.
type round struct {
	writes  int64
	took    time.Duration
	err     error
	noDisk  bool // no op works on it
	counted uint64
	total   time.Duration
}

func TestOnlyWritesWhileAVolumeMovesAreCounted(t *testing.T) {
	const ms = time.Millisecond
	for name, rounds := range map[string][]round{
		"what was before does not count": {
			{writes: 1000, took: 9 * time.Second},
			{writes: 1010, took: 9*time.Second + 20*ms, counted: 10, total: 20 * ms},
			{writes: 1010, took: 9*time.Second + 20*ms, counted: 10, total: 20 * ms},
		},
		"nor what was between two migrations": {
			{writes: 10, took: 10 * ms},
			{noDisk: true},
			{writes: 50, took: 50 * ms},
			{writes: 51, took: 52 * ms, counted: 1, total: 2 * ms},
		},
		"what was while libvirt was away does": {
			{writes: 10, took: 10 * ms},
			{err: hv.ErrUnavailable},
			{writes: 15, took: 20 * ms, counted: 5, total: 10 * ms},
		},
		"a guest that was off begins anew": {
			{writes: 10, took: 10 * ms},
			{err: hv.ErrNotActive},
			{writes: 100, took: 100 * ms},
			{writes: 103, took: 109 * ms, counted: 3, total: 9 * ms},
		},
		"so does one that was restarted between two looks": {
			{writes: 10, took: 10 * ms},
			{writes: 2, took: 2 * ms},
			{writes: 4, took: 6 * ms, counted: 2, total: 4 * ms},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var now round
			g := guestWrites{
				disks: func() []GuestDisk {
					if now.noDisk {
						return nil
					}
					return []GuestDisk{{InstanceID: "web", Target: "vda"}}
				},
				stats: func(context.Context, string, string) (*hv.DiskStats, error) {
					return &hv.DiskStats{WriteRequests: now.writes, WriteTime: now.took}, now.err
				},
			}
			for i, r := range rounds {
				now = r
				g.sample(t.Context())
				if writes, total := g.totals(); writes != r.counted || total != r.total {
					t.Errorf("after look %d: %d writes in %s, want %d in %s", i+1, writes, total, r.counted, r.total)
				}
			}
		})
	}
}

func TestGuestsAreSampledEverySecondUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sources()
		s.GuestDisks = func() []GuestDisk { return []GuestDisk{{InstanceID: "web", Target: "vda"}} }
		var looks int64
		s.DiskStats = func(context.Context, string, string) (*hv.DiskStats, error) {
			looks++
			return &hv.DiskStats{WriteRequests: looks, WriteTime: time.Duration(looks) * time.Millisecond}, nil
		}
		m := newMetrics(s)
		ctx, cancel := context.WithTimeout(t.Context(), 10*sampleEvery+sampleEvery/2)
		defer cancel()
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
		wantLines(t, m, "volferry_guest_write_seconds_sum 0.01\nvolferry_guest_write_seconds_count 10", "volferry_guest_write_seconds")
	})
}
