// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
)

// changePause makes one change of a move with all guests paused.
func (s *Store) changePause(ctx context.Context, call store.Call, ref, what string, request any, do func(context.Context, *changeTx, Pause) error) (Pause, error) {
	return mutate(ctx, s, call, what, []any{ref, request}, func(ctx context.Context, tx *changeTx) (Pause, error) {
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
}

// pauseInstanceNext are the states that an instance may go to, by phase.
var pauseInstanceNext = map[PausePhase]map[string][]string{
	PauseChecking:   {PausePending: {PauseChecked}},
	PauseSuspending: {PauseChecked: {PauseSuspended}},
	PauseSaving:     {PauseSuspended: {PauseSaved}},
	PauseCopying:    {},
	PauseRestoring:  {PauseSaved: {PauseReady}, PauseReady: {PauseRestored}},
	PauseCancelling: cancellingNext,
	PauseDone:       cancellingNext,
}

// cancellingNext: what became of the calls to suspend and to save is found out on the way.
// An instance that was never touched is restored at once.
var cancellingNext = map[string][]string{
	PausePending:   {PauseSuspended, PauseSaved, PauseRestored},
	PauseChecked:   {PauseSuspended, PauseSaved, PauseRestored},
	PauseSuspended: {PauseSaved, PauseReady},
	PauseSaved:     {PauseReady},
	PauseReady:     {PauseRestored},
}

// mayBecome says whether an instance may go to another state now.
func (p Pause) mayBecome(was PauseInstance, to string) bool {
	switch {
	case was.State == to:
		return true
	case to == PauseRestored && was.Lost && !was.Attached:
		return true // it cannot have the volume any more
	case to == PauseRestored && was.State == PauseReady && !p.Resuming:
		return false
	}
	return slices.Contains(pauseInstanceNext[p.Phase][was.State], to)
}

// SetPauseInstance records how far an instance of a move is: its state, attempts,
// whether it is lost, has run on (a RanAt, whichever), and its error. It is refused with conflict if the move is in
// another phase than the caller saw, or the state cannot follow. A restored instance
// is unlocked in the same transaction.
func (s *Store) SetPauseInstance(ctx context.Context, call store.Call, id string, phase PausePhase, g PauseInstance) (Pause, error) {
	return s.changePause(ctx, call, id, "migration.pause_instance", []any{phase, g}, func(ctx context.Context, tx *changeTx, p Pause) error {
		at := slices.IndexFunc(p.Instances, func(other PauseInstance) bool { return other.ID == g.ID })
		if at < 0 {
			return api.Errorf(api.CodeNotFound, "migration %s has no instance %s", p.Migration.ID, validate.Quote(g.ID))
		}
		was := p.Instances[at]
		if p.Phase != phase || !p.mayBecome(was, g.State) {
			return api.Errorf(api.CodeConflict, "instance %s of migration %s is %s in phase %s and cannot become %s in phase %s", was.Name, p.Migration.ID, was.State, p.Phase, validate.Quote(g.State), phase).
				With("phase", p.Phase)
		}
		if g.SaveAttempt < was.SaveAttempt || g.Attempt < was.Attempt {
			return api.Errorf(api.CodeConflict, "instance %s of migration %s was asked for anew meanwhile", was.Name, p.Migration.ID)
		}
		if samePauseInstance(was, g) {
			return nil
		}
		fail, err := encodeError(g.Error)
		if err != nil {
			return err
		}
		ran := was.RanAt
		switch {
		case !ran.IsZero():
		case g.State == PauseRestored, !g.RanAt.IsZero():
			// It was never put to rest, or ran on without our word.
			ran = cmp.Or(p.StoppedAt, tx.At)
		}
		if err := tx.Exec(ctx, "UPDATE pause_instances SET state = ?, lost = ?, save_attempt = ?, attempt = ?, error = ?, ran_us = ? WHERE migration_id = ? AND instance_id = ?",
			g.State, g.Lost, g.SaveAttempt, g.Attempt, fail, microsOrZero(ran), p.Migration.ID, g.ID); err != nil {
			return err
		}
		if err := tx.AuditMigration(ctx, p.Migration, api.Event{What: "migration.instance", From: was.State, To: g.State}, map[string]any{
			"instance_id": g.ID, "instance_name": was.Name, "instance_host": was.Host.Name, "phase": p.Phase, "lost": g.Lost, "error": g.Error,
		}); err != nil {
			return err
		}
		if g.Lost && g.Error != nil {
			if err := tx.explainLost(ctx, p, was); err != nil {
				return err
			}
		}
		if g.State == PauseRestored {
			if err := tx.unlockGuest(ctx, g.ID, p.Migration.ID); err != nil {
				return err
			}
		}
		return tx.settlePauseState(ctx, p.Migration.ID)
	})
}

// explainLost has the lock of an instance that was lost say how it is lifted: the move
// itself is over, or goes on without the instance.
func (tx *changeTx) explainLost(ctx context.Context, p Pause, g PauseInstance) error {
	i, err := store.InstanceByID(ctx, tx, g.ID)
	if err != nil || i.LockedBy != p.Migration.ID {
		return err
	}
	return tx.ExplainLock(ctx, i, fmt.Sprintf("host %s was fenced while it was put to rest for the move of volume %s, and its memory is not restored; %s", g.Host.Name, p.Migration.VolumeName, p.discardAdvice()))
}

// samePauseInstance says whether nothing is to be recorded.
func samePauseInstance(was, g PauseInstance) bool {
	return was.State == g.State && was.Lost == g.Lost && was.SaveAttempt == g.SaveAttempt && was.Attempt == g.Attempt && was.Error == nil && g.Error == nil &&
		(g.RanAt.IsZero() || !was.RanAt.IsZero())
}

// SetPauseCopy records how far the copy host's part is: attempt, the end that it has
// still to remove, and its error. It is refused with conflict if the move is in another
// phase than the caller saw.
func (s *Store) SetPauseCopy(ctx context.Context, call store.Call, id string, phase PausePhase, attempt int, dropEnd string, why *api.Error) (Pause, error) {
	return s.changePause(ctx, call, id, "migration.pause_copy", []any{phase, attempt, dropEnd, why}, func(ctx context.Context, tx *changeTx, p Pause) error {
		if err := p.checkPhase(phase); err != nil {
			return err
		}
		if attempt < p.Attempt || dropEnd != "" && dropEnd != p.DropEnd {
			return api.Errorf(api.CodeConflict, "the copy host of migration %s was asked anew meanwhile", p.Migration.ID)
		}
		fail, err := encodeError(why)
		if err != nil {
			return err
		}
		if err := tx.Exec(ctx, "UPDATE pauses SET attempt = ?, drop_end = ?, error = ? WHERE migration_id = ?", attempt, dropEnd, fail, p.Migration.ID); err != nil {
			return err
		}
		if err := tx.AuditMigration(ctx, p.Migration, api.Event{What: "migration.copy_host", From: p.DropEnd, To: dropEnd},
			map[string]any{"phase": p.Phase, "attempt": attempt, "error": why}); err != nil {
			return err
		}
		return tx.settlePauseState(ctx, p.Migration.ID)
	})
}

func (p Pause) checkPhase(phase PausePhase) error {
	if p.Phase == phase {
		return nil
	}
	return api.Errorf(api.CodeConflict, "migration %s of volume %s is in phase %s, no longer in %s", p.Migration.ID, p.Migration.VolumeName, p.Phase, phase).With("phase", p.Phase)
}

// FlipPause is the commit point: the volume and all its attachments are at dst, as it
// was made, and the volume is in its next generation. Src stays reserved until the
// end.
func (s *Store) FlipPause(ctx context.Context, call store.Call, id string, dst api.Location) (Pause, error) {
	if err := validate.Location("destination", dst); err != nil {
		return Pause{}, err
	}
	return s.changePause(ctx, call, id, "migration.pause_flip", dst, func(ctx context.Context, tx *changeTx, p Pause) error {
		if err := p.checkPhase(PauseCopying); err != nil {
			return err
		}
		if err := tx.checkReservedDst(ctx, p, dst); err != nil {
			return err
		}
		if err := tx.MoveReservation(ctx, p.Migration, dst); err != nil {
			return err
		}
		var scope string
		if err := tx.QueryRowContext(ctx, "SELECT scope FROM locations WHERE volume_id = ? AND migration_id IS NULL", p.Migration.VolumeID).Scan(&scope); err != nil {
			return fmt.Errorf("read scope of src: %w", err)
		}
		if err := tx.Flip(ctx, p.Migration); err != nil {
			return err
		}
		src := p.Migration.Src
		if err := tx.ExecAll(ctx,
			ledger.SQL(`INSERT INTO locations (volume_id, migration_id, scope, pool, name, path, format, size_bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
				p.Migration.VolumeID, p.Migration.ID, scope, src.Pool, src.Name, src.Path, src.Format, src.SizeBytes),
			ledger.SQL("UPDATE attachments SET updated_us = ? WHERE volume_id = ?", tx.At.UnixMicro(), p.Migration.VolumeID),
		); err != nil {
			return err
		}
		drop := ""
		if p.Request.DeleteSource {
			drop = api.DropSrc
		}
		return tx.setPhase(ctx, p, PauseRestoring, drop, nil)
	})
}

// FinishPause ends a move of which nothing is left to do but what is lost: the volume
// is unlocked, and the end that it is not at is free.
func (s *Store) FinishPause(ctx context.Context, call store.Call, id string) (Pause, error) {
	return s.changePause(ctx, call, id, "migration.pause_finish", nil, func(ctx context.Context, tx *changeTx, p Pause) error {
		if p.Phase != PauseRestoring && p.Phase != PauseCancelling {
			return p.checkPhase(PauseRestoring)
		}
		if p.DropEnd != "" {
			return api.Errorf(api.CodeConflict, "the %s of migration %s is not removed yet", p.DropEnd, p.Migration.ID)
		}
		if !p.Resuming {
			return api.Errorf(api.CodeConflict, "the guests of migration %s were not let run on yet", p.Migration.ID)
		}
		for _, g := range p.Instances {
			if g.State != PauseRestored && !g.Lost {
				return api.Errorf(api.CodeConflict, "instance %s is not restored yet", g.Name)
			}
		}
		state, why := api.MigrationCompleted, p.Error
		if p.Phase == PauseCancelling {
			state, why = api.MigrationCancelled, p.Why
		}
		fail, err := encodeError(why)
		if err != nil {
			return err
		}
		if err := tx.ExecAll(ctx,
			ledger.SQL("UPDATE pauses SET phase = 'done' WHERE migration_id = ?", p.Migration.ID),
			ledger.SQL("UPDATE migrations SET state = ?, error = ?, finished_us = ? WHERE id = ?", state, fail, tx.At.UnixMicro(), p.Migration.ID),
		); err != nil {
			return err
		}
		// What the migration has reserved is dst before the flip and src after it.
		if err := tx.ReleaseDst(ctx, p.Migration); err != nil {
			return err
		}
		return tx.AuditMigration(ctx, p.Migration, api.Event{What: "migration.transition", From: string(p.Migration.State), To: string(state)}, map[string]any{"error": why})
	})
}

// setPhase brings a move into its next phase.
func (tx *changeTx) setPhase(ctx context.Context, p Pause, to PausePhase, dropEnd string, why *api.Error) error {
	reason, err := encodeError(why)
	if err != nil {
		return err
	}
	if err := tx.ExecAll(ctx,
		ledger.SQL("UPDATE pauses SET phase = ?, attempt = 0, drop_end = ?, why = ?, error = NULL WHERE migration_id = ?", to, dropEnd, reason, p.Migration.ID),
		ledger.SQL("UPDATE pause_instances SET attempt = 0, error = NULL WHERE migration_id = ?", p.Migration.ID),
	); err != nil {
		return err
	}
	if err := tx.AuditMigration(ctx, p.Migration, api.Event{What: "migration.phase", From: string(p.Phase), To: string(to), OpID: p.Migration.ID}, map[string]any{"error": why}); err != nil {
		return err
	}
	return tx.settlePauseState(ctx, p.Migration.ID)
}

// settlePauseState makes the state of the migration what follows from its move: that
// of the phase, or needs_operator where something that it waits for is stopped.
func (tx *changeTx) settlePauseState(ctx context.Context, id string) error {
	p, err := pauseByID(ctx, tx, id)
	if err != nil || p.Phase == PauseDone {
		return err
	}
	state, why := p.Phase.state(), p.Why
	if stops := p.blocker(); stops != nil {
		state, why = api.MigrationNeedsOperator, stops
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

// blocker is what stops a move until an operator says more, nil if it goes on.
func (p Pause) blocker() *api.Error {
	for _, g := range p.Instances {
		if g.Error != nil && !g.Lost {
			return g.Error
		}
	}
	if p.DropEnd == "" {
		return nil // what it says is for the end
	}
	return p.Error
}
