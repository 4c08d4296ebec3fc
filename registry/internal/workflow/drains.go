// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
)

// Drains has the drains of pools, with their volumes.
type Drains struct {
	db       *store.DB
	pools    *store.Pools
	progress *store.Progress
}

var kindDrain = store.Kind{Noun: "drain", Table: "drains"}

func (tx *changeTx) auditDrain(ctx context.Context, d api.Drain, what, from, to string, details map[string]any) error {
	return tx.Audit(ctx, api.Event{What: what, Object: "drain/" + d.ID, From: from, To: to, Details: withPool(details, d.Pool)})
}

func withPool(details map[string]any, pool string) map[string]any {
	if details == nil {
		details = map[string]any{}
	}
	details["pool"] = pool
	return details
}

// All returns every drain with its volumes, newest first.
func (s *Drains) All(ctx context.Context) ([]api.Drain, error) {
	return s.list(ctx, "ORDER BY started_us DESC, id")
}

// drainRows is the number of drains read at a time; each may have thousands of volumes.
const drainRows = 16

// After returns a chunk of the drains after this id, in order of ids, and whether there may
// be more.
func (s *Drains) After(ctx context.Context, id string) (drains []api.Drain, more bool, err error) {
	drains, err = s.list(ctx, "WHERE id > ? ORDER BY id LIMIT ?", id, drainRows)
	return drains, len(drains) == drainRows, err
}

// Open returns the drains that the loop has to advance, oldest first: running and paused drains,
// and stopped drains with a move in progress.
func (s *Drains) Open(ctx context.Context) ([]api.Drain, error) {
	return s.list(ctx, `WHERE state IN ('running', 'paused')
		OR EXISTS (SELECT 1 FROM drain_volumes v WHERE v.drain_id = drains.id AND v.state = 'moving')
		ORDER BY started_us, id`)
}

func (s *Drains) list(ctx context.Context, which string, args ...any) ([]api.Drain, error) {
	return ledger.View(ctx, s.db.Reader(), func(q ledger.Querier) ([]api.Drain, error) {
		ids, err := ledger.QueryAll(ctx, q, ledger.ScanString, "SELECT id FROM drains "+which, args...)
		if err != nil {
			return nil, err
		}
		drains := make([]api.Drain, 0, len(ids))
		for _, id := range ids {
			d, err := s.byID(ctx, q, id)
			if err != nil {
				return nil, err
			}
			drains = append(drains, d)
		}
		return drains, nil
	})
}

// Get returns the drain that ref names, with the last reported progress of its moves.
func (s *Drains) Get(ctx context.Context, ref string) (api.Drain, error) {
	return store.ViewOne(ctx, s.db, kindDrain, ref, s.byID)
}

func (s *Drains) byID(ctx context.Context, q ledger.Querier, id string) (api.Drain, error) {
	var (
		d        = api.Drain{ID: id}
		started  int64
		finished *int64
	)
	if err := q.QueryRowContext(ctx, `SELECT pool, to_pool, parallel, bandwidth_bytes_per_second, pace, verify, delete_source, live_shared, max_pause_seconds, throttle_writers, pause_all, checkpoints, state, started_us, finished_us
		FROM drains WHERE id = ?`, id).
		Scan(&d.Pool, &d.ToPool, &d.Parallel, &d.BandwidthBytesPerSecond, &d.Pace, &d.Verify, &d.DeleteSource, &d.LiveShared, &d.MaxPauseSeconds, &d.ThrottleWriters, &d.PauseAll, &d.Checkpoints, &d.State, &started, &finished); err != nil {
		return d, fmt.Errorf("read drain %s: %w", id, err)
	}
	d.StartedAt = ledger.FromMicros(started)
	if finished != nil {
		at := ledger.FromMicros(*finished)
		d.FinishedAt = &at
	}
	var err error
	if d.Volumes, err = ledger.QueryAll(ctx, q, scanDrainVolume, drainVolumeQuery+" WHERE drain_id = ? ORDER BY volume_name, volume_id", id); err != nil {
		return d, err
	}
	for i := range d.Volumes {
		v := &d.Volumes[i]
		s.addProgress(v)
		// Skipped volumes do not count as the drain's work.
		if v.State != api.DrainVolumeSkipped {
			d.BytesTotal += v.SizeBytes
			d.BytesDone += v.BytesDone
		}
	}
	return d, nil
}

func (s *Drains) addProgress(v *api.DrainVolume) {
	switch v.State {
	case api.DrainVolumeMoved:
		v.BytesDone = v.SizeBytes
	case api.DrainVolumeMoving:
		if live, ok := s.progress.Of(v.MigrationID); ok {
			v.BytesDone = min(max(live.BytesDone, 0), v.SizeBytes)
		}
	}
}
