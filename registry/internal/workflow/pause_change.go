// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
)

func (s *Pauses) change(ctx context.Context, call store.Call, ref, what string, request any, do func(context.Context, *changeTx, Pause) error) (Pause, error) {
	out, err := mutate(ctx, s.db, call, what, []any{ref, request}, func(ctx context.Context, tx *changeTx) (Pause, error) {
		id, err := store.Resolve(ctx, tx, store.KindMigration, ref)
		if err != nil {
			return Pause{}, err
		}
		if err := tx.CheckOwn(ctx, store.KindMigration, id, "change", id); err != nil {
			return Pause{}, err
		}
		p, err := pauseByID(ctx, tx, id)
		if err != nil {
			return p, err
		}
		if err := do(ctx, tx, p); err != nil {
			return p, err
		}
		return pauseByID(ctx, tx, id)
	})
	if err == nil {
		s.changed.Announce()
	}
	return out, err
}

// Changed returns a channel that the next change of a move by Pauses or LiveMoves closes, unlike
// other changes, such as a fence. To miss none, call Changed before Open.
func (s *Pauses) Changed() <-chan struct{} { return s.changed.Wait() }

func (p Pause) checkPhase(phase PausePhase) error {
	if p.Phase == phase {
		return nil
	}
	return api.Errorf(api.CodeConflict, "migration %s of volume %s is in phase %s, no longer in %s", p.Migration.ID, p.Migration.VolumeName, p.Phase, phase).With("phase", p.Phase)
}

func (tx *changeTx) setPhase(ctx context.Context, p Pause, to PausePhase, dropEnd string, why *api.Error) error {
	reason, err := encodeError(why)
	if err != nil {
		return err
	}
	// A live move may have several pauses. Each needs new ids of the calls that restore guests.
	attempt := "0"
	if p.Live != nil {
		attempt = "attempt + 1"
	}
	if err := tx.ExecAll(ctx,
		ledger.SQL("UPDATE pauses SET phase = ?, attempt = 0, drop_end = ?, why = ?, error = NULL WHERE migration_id = ?", to, dropEnd, reason, p.Migration.ID),
		ledger.SQL("UPDATE pause_instances SET attempt = "+attempt+", error = NULL WHERE migration_id = ?", p.Migration.ID),
	); err != nil {
		return err
	}
	if err := tx.AuditMigration(ctx, p.Migration, api.Event{What: "migration.phase", From: string(p.Phase), To: string(to), OpID: p.Migration.ID}, map[string]any{"error": why}); err != nil {
		return err
	}
	if err := tx.noteStep(ctx, p, to, api.PauseStep{Reached: string(to)}); err != nil {
		return err
	}
	return tx.settlePauseState(ctx, p.Migration.ID)
}

// settlePauseState stores the migration's state: needs_operator if the move is blocked, else the
// state that follows from the phase.
func (tx *changeTx) settlePauseState(ctx context.Context, id string) error {
	p, err := pauseByID(ctx, tx, id)
	if err != nil || p.Phase == PauseDone {
		return err
	}
	state, why := p.state(), p.Why
	if stops := p.blocker(); stops != nil {
		state, why = api.MigrationNeedsOperator, p.cured(stops, tx.At)
	}
	fail, err := encodeError(why)
	if err != nil {
		return err
	}
	if err := tx.Exec(ctx, "UPDATE migrations SET state = ?, error = ? WHERE id = ?", state, fail, id); err != nil {
		return err
	}
	if state == p.Migration.State {
		return nil
	}
	return tx.AuditMigration(ctx, p.Migration, api.Event{What: "migration.transition", From: string(p.Migration.State), To: string(state)}, nil)
}

func (p Pause) blocker() *api.Error {
	for _, g := range p.Instances {
		if g.Error != nil && !g.Lost {
			return g.Error
		}
	}
	if p.Live != nil {
		for _, h := range p.Live.Hosts {
			if h.Error != nil && !h.Fenced {
				return h.Error
			}
		}
	}
	if p.DropEnd == "" {
		return nil // the error only appears at the end
	}
	return p.Error
}

const phaseResuming = "resuming"

func (p Pause) phaseShown() string {
	if p.Resuming && p.Phase != PauseDone {
		return phaseResuming
	}
	return string(p.Phase)
}
