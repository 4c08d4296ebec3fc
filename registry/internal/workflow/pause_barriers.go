// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
)

// Suspend begins the phase suspending, in a move with all guests paused, once every instance is
// checked. From then on the hosts may suspend their instances.
func (s *Pauses) Suspend(ctx context.Context, call store.Call, id string) (Pause, error) {
	return s.passBarrier(ctx, call, id, PauseChecking, PauseChecked, PauseSuspending, "")
}

// Save begins the phase saving, once every instance is suspended. From then on the hosts may save
// their instances, so all saved memory is from a time when no guest ran. In a live move the hosts
// first read their last bitmaps (PauseLast).
func (s *Pauses) Save(ctx context.Context, call store.Call, id string) (Pause, error) {
	return s.passBarrier(ctx, call, id, PauseSuspending, PauseSuspended, PauseSaving, "")
}

// Copy begins the phase copying, once every instance is saved. From then on no process has the
// volume open, and dst may exist.
func (s *Pauses) Copy(ctx context.Context, call store.Call, id string) (Pause, error) {
	return s.passBarrier(ctx, call, id, PauseSaving, PauseSaved, PauseCopying, api.DropDst)
}

func (s *Pauses) passBarrier(ctx context.Context, call store.Call, id string, from PausePhase, all string, to PausePhase, dropEnd string) (Pause, error) {
	return s.change(ctx, call, id, "migration.pause_"+string(to), nil, func(ctx context.Context, tx *changeTx, p Pause) error {
		if err := p.checkPhase(from); err != nil {
			return err
		}
		for _, g := range p.Instances {
			if g.State != all {
				return api.Errorf(api.CodeConflict, "instance %s is %s, not %s", g.Name, g.State, all)
			}
		}
		if p.Live != nil {
			if to != PauseSaving {
				return p.checkPhase(to) // a live move uses Pass
			}
			return tx.setPhase(ctx, p, PauseLast, p.DropEnd, nil)
		}
		if to == PauseSuspending {
			if err := tx.Exec(ctx, "UPDATE pauses SET stopped_us = ? WHERE migration_id = ?", tx.At.UnixMicro(), p.Migration.ID); err != nil {
				return err
			}
		}
		return tx.setPhase(ctx, p, to, dropEnd, nil)
	})
}

// Resume allows the hosts to resume the instances, once every instance that can be restored is
// restored. A guest that was not restored may not use its saved memory any more when another guest
// has written to a volume that they share (Permit).
func (s *Pauses) Resume(ctx context.Context, call store.Call, id string) (Pause, error) {
	return s.change(ctx, call, id, "migration.pause_resuming", nil, func(ctx context.Context, tx *changeTx, p Pause) error {
		if !p.wakes() {
			return p.checkPhase(PauseRestoring)
		}
		for _, g := range p.Instances {
			if !p.standsBy(g) {
				return api.Errorf(api.CodeConflict, "instance %s is %s, not %s", g.Name, g.State, PauseReady)
			}
		}
		if p.Resuming {
			return nil
		}
		if err := tx.Exec(ctx, "UPDATE pauses SET resuming = 1 WHERE migration_id = ?", p.Migration.ID); err != nil {
			return err
		}
		if err := tx.noteStep(ctx, p, p.Phase, api.PauseStep{Reached: phaseResuming}); err != nil {
			return err
		}
		return tx.AuditMigration(ctx, p.Migration, api.Event{What: "migration.phase", From: string(p.Phase), To: phaseResuming, OpID: p.Migration.ID}, nil)
	})
}

// standsBy reports whether the other guests may be resumed without waiting for g. The others may
// be resumed before a guest that is not known to be suspended, and so was not saved.
func (p Pause) standsBy(g PauseInstance) bool {
	switch g.State {
	case PauseReady, PauseRestored:
		return true
	case PausePending, PauseChecked:
		return true
	}
	return g.Lost || g.Error != nil
}

// CanResume reports whether Resume may be called now.
func (p Pause) CanResume() bool {
	for _, g := range p.Instances {
		if !p.standsBy(g) {
			return false
		}
	}
	return !p.Resuming && p.wakes()
}

func (p Pause) wakes() bool {
	return p.Phase == PauseRestoring || p.Phase == PauseCancelling || p.Phase == PauseAgain
}
