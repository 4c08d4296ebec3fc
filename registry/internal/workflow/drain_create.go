// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
)

const maxParallel = 64

// Create starts a drain of a pool with every volume that is now in it. It first stops an open
// drain between the same pools with failed or skipped volumes, to try these again.
func (s *Drains) Create(ctx context.Context, call store.Call, pool string, in api.PoolDrain) (api.Drain, error) {
	in.Parallel = cmp.Or(in.Parallel, 1)
	if err := checkDrain(pool, in); err != nil {
		return api.Drain{}, err
	}
	return mutate(ctx, s.db, call, "drain.create", []any{pool, in}, func(ctx context.Context, tx *changeTx) (api.Drain, error) {
		if err := cmp.Or(store.CheckPoolKnown(ctx, tx, pool), store.CheckPoolKnown(ctx, tx, in.ToPool), store.CheckPoolActive(ctx, tx, in.ToPool)); err != nil {
			return api.Drain{}, err
		}
		if err := s.supersede(ctx, tx, pool, in.ToPool); err != nil {
			return api.Drain{}, err
		}
		id := uuid.NewString()
		_, err := tx.ExecContext(ctx, `INSERT INTO drains (id, pool, to_pool, parallel, bandwidth_bytes_per_second, pace, verify, delete_source, live_shared, max_pause_seconds, throttle_writers, pause_all, checkpoints, state, started_us)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', ?)`, id, pool, in.ToPool, in.Parallel, in.BandwidthBytesPerSecond, in.Pace, in.Verify, in.DeleteSource,
			in.LiveShared, in.MaxPauseSeconds, in.ThrottleWriters, in.PauseAll, in.Checkpoints, tx.At.UnixMicro())
		if sqlitedb.Violates(err, "drains.pool") {
			return api.Drain{}, tx.drainConflict(ctx, pool)
		}
		if err != nil {
			return api.Drain{}, fmt.Errorf("store drain: %w", err)
		}
		if _, err := tx.addArrived(ctx, id, pool); err != nil {
			return api.Drain{}, err
		}
		d, err := s.byID(ctx, tx, id)
		if err != nil {
			return d, err
		}
		return d, tx.auditDrain(ctx, d, "drain.create", "", d.State, map[string]any{
			"to_pool": d.ToPool, "parallel": d.Parallel, "bandwidth_bytes_per_second": d.BandwidthBytesPerSecond, "pace": d.Pace,
			"verify": d.Verify, "delete_source": d.DeleteSource, "live_shared": d.LiveShared, "pause_all": d.PauseAll, "checkpoints": d.Checkpoints, "volumes": len(d.Volumes),
		})
	})
}

// supersede stops an open drain from pool to toPool that has failed or skipped volumes. Running
// moves continue. A drain to another pool must be stopped by the operator first.
func (s *Drains) supersede(ctx context.Context, tx *changeTx, pool, toPool string) error {
	var id string
	err := tx.QueryRowContext(ctx, "SELECT id FROM drains WHERE pool = ? AND to_pool = ? AND state IN ('running', 'paused')", pool, toPool).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read drain of pool: %w", err)
	}
	d, err := s.byID(ctx, tx, id)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(d.Volumes, func(v api.DrainVolume) bool {
		return v.State == api.DrainVolumeFailed || v.State == api.DrainVolumeSkipped
	}) {
		return nil
	}
	_, err = s.setState(ctx, tx, d, api.DrainStopped)
	return err
}

func checkDrain(pool string, in api.PoolDrain) error {
	if err := cmp.Or(validate.Required("pool", pool), validate.Required("pool to drain to", in.ToPool)); err != nil {
		return err
	}
	switch {
	case pool == in.ToPool:
		return validate.Invalid("a pool cannot be drained to itself")
	case in.Parallel < 1 || in.Parallel > maxParallel:
		return validate.Invalid("%d volumes cannot be moved at once; say a number from 1 to %d", in.Parallel, maxParallel)
	case !in.LiveShared && (in.MaxPauseSeconds != 0 || in.ThrottleWriters):
		return validate.Invalid("max_pause_seconds and throttle_writers go with live_shared only")
	case in.LiveShared && in.PauseAll:
		return validate.Invalid("live_shared and pause_all exclude each other")
	case in.MovesShared():
		if err := in.SharedTarget().Check(); err != nil {
			return err
		}
	}
	return in.Target().Check()
}

func (tx *changeTx) drainConflict(ctx context.Context, pool string) error {
	var id, state string
	if err := tx.QueryRowContext(ctx, "SELECT id, state FROM drains WHERE pool = ? AND state IN ('running', 'paused')", pool).Scan(&id, &state); err != nil {
		return fmt.Errorf("read drain of pool: %w", err)
	}
	return api.Errorf(api.CodeConflict, "the pool %s is being drained already: drain %s is %s; let it run on, or stop it first; `%s` says what it waits for", pool, id, state, shell.Line("volferryctl", "drain", "show", id)).
		With("drain_id", id)
}
