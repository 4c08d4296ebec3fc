// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
)

var drainNext = map[string][]string{
	api.DrainRunning: {api.DrainPaused, api.DrainStopped},
	api.DrainPaused:  {api.DrainRunning, api.DrainStopped},
}

// SetState pauses, resumes or stops a drain. Running moves continue to their end. Setting the
// present state changes nothing.
func (s *Drains) SetState(ctx context.Context, call store.Call, ref, to string) (api.Drain, error) {
	if !slices.Contains([]string{api.DrainRunning, api.DrainPaused, api.DrainStopped}, to) {
		return api.Drain{}, validate.Invalid("a drain cannot be made %s", validate.Quote(to))
	}
	return mutate(ctx, s.db, call, "drain.state", []any{ref, to}, func(ctx context.Context, tx *changeTx) (api.Drain, error) {
		id, err := store.Resolve(ctx, tx, kindDrain, ref)
		if err != nil {
			return api.Drain{}, err
		}
		d, err := s.byID(ctx, tx, id)
		if err != nil || d.State == to {
			return d, err
		}
		if !slices.Contains(drainNext[d.State], to) {
			return d, api.Errorf(api.CodeStateForbidden, "drain %s is %s and cannot become %s; begin another one", d.ID, d.State, to).With("state", d.State)
		}
		return s.setState(ctx, tx, d, to)
	})
}

// Finish ends a running drain without remaining work. It returns conflict while a volume is
// pending or moving, or is in the pool and not in the drain yet.
func (s *Drains) Finish(ctx context.Context, call store.Call, drainID string) (api.Drain, error) {
	return mutate(ctx, s.db, call, "drain.finish", drainID, func(ctx context.Context, tx *changeTx) (api.Drain, error) {
		id, err := store.Resolve(ctx, tx, kindDrain, drainID)
		if err != nil {
			return api.Drain{}, err
		}
		d, err := s.byID(ctx, tx, id)
		if err != nil || d.State == api.DrainDone {
			return d, err
		}
		if d.State != api.DrainRunning {
			return d, api.Errorf(api.CodeConflict, "drain %s is %s; only one that runs can be done", d.ID, d.State).With("state", d.State)
		}
		arrived, err := tx.addArrived(ctx, d.ID, d.Pool)
		if err != nil {
			return d, err
		}
		for _, v := range d.Volumes {
			if v.State == api.DrainVolumePending || v.State == api.DrainVolumeMoving {
				arrived++
			}
		}
		if arrived > 0 {
			return d, api.Errorf(api.CodeConflict, "drain %s has %s left", d.ID, humanize.Count(arrived, "volume"))
		}
		return s.setState(ctx, tx, d, api.DrainDone)
	})
}

func (s *Drains) setState(ctx context.Context, tx *changeTx, d api.Drain, to string) (api.Drain, error) {
	var finished any
	if to == api.DrainStopped || to == api.DrainDone {
		finished = tx.At.UnixMicro()
	}
	if err := tx.Exec(ctx, "UPDATE drains SET state = ?, finished_us = ? WHERE id = ?", to, finished, d.ID); err != nil {
		return d, err
	}
	if err := tx.auditDrain(ctx, d, "drain.state", d.State, to, nil); err != nil {
		return d, err
	}
	return s.byID(ctx, tx, d.ID)
}
