// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/volferry/volferry/internal/api"
)

// changePause makes one change of a move with all guests paused.
func (s *Store) changePause(ctx context.Context, call Call, ref, what string, request any, do func(context.Context, *changeTx, Pause) error) (Pause, error) {
	return mutate(ctx, s, call, what, []any{ref, request}, func(ctx context.Context, tx *changeTx) (Pause, error) {
		id, err := resolve(ctx, tx, kindMigration, ref)
		if err != nil {
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

// pauseInstanceNext are the states that an instance may go to, by phase. One whose
// save was asked for and that must be woken is saved; one that never was is restored
// at once.
var pauseInstanceNext = map[PausePhase]map[string][]string{
	PauseSaving:     {PausePending: {PauseSaved}},
	PauseCopying:    {},
	PauseRestoring:  {PauseSaved: {PauseRestored}},
	PauseCancelling: {PausePending: {PauseSaved, PauseRestored}, PauseSaved: {PauseRestored}},
	PauseDone:       {PausePending: {PauseSaved, PauseRestored}, PauseSaved: {PauseRestored}},
}

// SetPauseInstance records how far an instance of a move is: its state, attempts,
// whether it is lost, and its error. It is refused with conflict if the move is in
// another phase than the caller saw, or the state cannot follow. A restored instance
// is unlocked in the same transaction.
func (s *Store) SetPauseInstance(ctx context.Context, call Call, id string, phase PausePhase, g PauseInstance) (Pause, error) {
	return s.changePause(ctx, call, id, "migration.pause_instance", []any{phase, g}, func(ctx context.Context, tx *changeTx, p Pause) error {
		at := slices.IndexFunc(p.Instances, func(other PauseInstance) bool { return other.ID == g.ID })
		if at < 0 {
			return api.Errorf(api.CodeNotFound, "migration %s has no instance %s", p.Migration.ID, quote(g.ID))
		}
		was := p.Instances[at]
		if p.Phase != phase || was.State != g.State && !slices.Contains(pauseInstanceNext[phase][was.State], g.State) {
			return api.Errorf(api.CodeConflict, "instance %s of migration %s is %s in phase %s and cannot become %s in phase %s", was.Name, p.Migration.ID, was.State, p.Phase, quote(g.State), phase).
				With("phase", p.Phase)
		}
		if g.SaveAttempt < was.SaveAttempt || g.Attempt < was.Attempt {
			return api.Errorf(api.CodeConflict, "instance %s of migration %s was asked for anew meanwhile", was.Name, p.Migration.ID)
		}
		if same(was, g) {
			return nil
		}
		fail, err := encodeError(g.Error)
		if err != nil {
			return err
		}
		if err := tx.exec(ctx, "UPDATE pause_instances SET state = ?, lost = ?, save_attempt = ?, attempt = ?, error = ? WHERE migration_id = ? AND instance_id = ?",
			g.State, g.Lost, g.SaveAttempt, g.Attempt, fail, p.Migration.ID, g.ID); err != nil {
			return err
		}
		if err := tx.auditMigration(ctx, p.Migration, api.Event{What: "migration.instance", From: was.State, To: g.State}, map[string]any{
			"instance_id": g.ID, "instance_name": was.Name, "instance_host": was.Host.Name, "phase": p.Phase, "lost": g.Lost, "error": g.Error,
		}); err != nil {
			return err
		}
		if g.State == PauseRestored {
			if err := tx.unlockGuest(ctx, g.ID, p.Migration.ID); err != nil {
				return err
			}
		}
		return tx.settlePauseState(ctx, p.Migration.ID)
	})
}

// same says whether nothing is to be recorded.
func same(was, g PauseInstance) bool {
	return was.State == g.State && was.Lost == g.Lost && was.SaveAttempt == g.SaveAttempt && was.Attempt == g.Attempt && was.Error == nil && g.Error == nil
}

// SetPauseCopy records how far the copy host's part is: attempt, the end that it has
// still to remove, and its error. It is refused with conflict if the move is in another
// phase than the caller saw.
func (s *Store) SetPauseCopy(ctx context.Context, call Call, id string, phase PausePhase, attempt int, dropEnd string, why *api.Error) (Pause, error) {
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
		if err := tx.exec(ctx, "UPDATE pauses SET attempt = ?, drop_end = ?, error = ? WHERE migration_id = ?", attempt, dropEnd, fail, p.Migration.ID); err != nil {
			return err
		}
		if err := tx.auditMigration(ctx, p.Migration, api.Event{What: "migration.copy_host", From: p.DropEnd, To: dropEnd},
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

// CopyPause begins the copy, once every instance is saved: from here on nobody has
// the volume open, and dst may exist.
func (s *Store) CopyPause(ctx context.Context, call Call, id string) (Pause, error) {
	return s.changePause(ctx, call, id, "migration.pause_copying", nil, func(ctx context.Context, tx *changeTx, p Pause) error {
		if err := p.checkPhase(PauseSaving); err != nil {
			return err
		}
		for _, g := range p.Instances {
			if g.State != PauseSaved {
				return api.Errorf(api.CodeConflict, "instance %s is not saved", g.Name)
			}
		}
		return tx.movePause(ctx, p, PauseCopying, api.DropDst, nil)
	})
}

// FlipPause is the commit point: the volume and all its attachments are at dst, as it
// was made, and the volume is in its next generation. Src stays reserved until the
// end.
func (s *Store) FlipPause(ctx context.Context, call Call, id string, dst api.Location) (Pause, error) {
	if err := checkLocation("destination", dst); err != nil {
		return Pause{}, err
	}
	return s.changePause(ctx, call, id, "migration.pause_flip", dst, func(ctx context.Context, tx *changeTx, p Pause) error {
		if err := p.checkPhase(PauseCopying); err != nil {
			return err
		}
		if err := tx.checkMade(ctx, p.Migration, dst); err != nil {
			return err
		}
		if err := tx.moveReservation(ctx, p.Migration, dst); err != nil {
			return err
		}
		var scope string
		if err := tx.QueryRowContext(ctx, "SELECT scope FROM locations WHERE volume_id = ? AND migration_id IS NULL", p.Migration.VolumeID).Scan(&scope); err != nil {
			return fmt.Errorf("read scope of src: %w", err)
		}
		if err := tx.flip(ctx, p.Migration); err != nil {
			return err
		}
		src := p.Migration.Src
		if err := tx.execAll(ctx,
			sqlStep(`INSERT INTO locations (volume_id, migration_id, scope, pool, name, path, format, size_bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
				p.Migration.VolumeID, p.Migration.ID, scope, src.Pool, src.Name, src.Path, src.Format, src.SizeBytes),
			sqlStep("UPDATE attachments SET updated_us = ? WHERE volume_id = ?", tx.at.UnixMicro(), p.Migration.VolumeID),
		); err != nil {
			return err
		}
		drop := ""
		if p.Request.DeleteSource {
			drop = api.DropSrc
		}
		return tx.movePause(ctx, p, PauseRestoring, drop, nil)
	})
}

// checkMade refuses another place than the one that is reserved: the host that made the
// copy says where the guests of other hosts find their volume.
func (tx *changeTx) checkMade(ctx context.Context, m api.Migration, dst api.Location) error {
	want := m.Dst
	if want.Pool != "" {
		var dir string
		err := tx.QueryRowContext(ctx, "SELECT p.path FROM pools p JOIN migrations m ON m.host_id = p.host_id WHERE m.id = ? AND p.name = ?", m.ID, want.Pool).Scan(&dir)
		switch {
		case errors.Is(err, sql.ErrNoRows) || (err == nil && dir == ""):
			want.Path = dst.Path // nothing that it could be compared with
		case err != nil:
			return fmt.Errorf("look up the pool of dst: %w", err)
		default:
			want.Path = path.Join(dir, want.Name)
		}
	}
	if dst.Pool != want.Pool || dst.Name != want.Name || dst.Path != want.Path {
		return api.Errorf(api.CodeConflict, "the copy of migration %s was made at %s, and %s is reserved for it", m.ID, place(dst), place(want))
	}
	return nil
}

// checkGuests is CheckGuest of every guest of a move.
func (tx *changeTx) checkGuests(verb string, p Pause) error {
	for _, g := range p.Instances {
		if err := tx.call.CheckGuest(verb+" migration "+p.Migration.ID, g); err != nil {
			return err
		}
	}
	return nil
}

// CancelPause ends a move at src: why is the reason, nil for an operator's wish. Once
// it has moved it is refused with past_point_of_no_return. One that is being cancelled
// already and needs an operator is tried again.
func (s *Store) CancelPause(ctx context.Context, call Call, ref string, why *api.Error) (Pause, error) {
	return s.changePause(ctx, call, ref, "migration.pause_cancel", why, func(ctx context.Context, tx *changeTx, p Pause) error {
		if err := tx.checkGuests("cancel", p); err != nil {
			return err
		}
		switch p.Phase {
		case PauseSaving, PauseCopying:
			return tx.movePause(ctx, p, PauseCancelling, p.DropEnd, why)
		case PauseCancelling:
			if why != nil {
				return nil //nolint:nilerr // only an operator tries again
			}
			return tx.retryPause(ctx, p)
		case PauseRestoring:
			return api.Errorf(api.CodePastPointOfNoReturn, "cannot cancel migration %s: volume %s is at %s already, and its guests are being woken there; migrate it back after that",
				p.Migration.ID, p.Migration.VolumeName, place(p.Migration.Dst))
		case PauseDone:
		}
		return p.over()
	})
}

// CompletePause tries again to wake the guests of a move that needs an operator after
// the volume was moved. Before that it is refused: it goes on by itself.
func (s *Store) CompletePause(ctx context.Context, call Call, ref string) (Pause, error) {
	return s.changePause(ctx, call, ref, "migration.pause_complete", nil, func(ctx context.Context, tx *changeTx, p Pause) error {
		if err := tx.checkGuests("complete", p); err != nil {
			return err
		}
		switch p.Phase {
		case PauseRestoring:
			return tx.retryPause(ctx, p)
		case PauseSaving, PauseCopying:
			return api.Errorf(api.CodeStateForbidden, "cannot complete migration %s of volume %s: it is %s and goes on by itself", p.Migration.ID, p.Migration.VolumeName, p.Phase)
		case PauseCancelling:
			return api.Errorf(api.CodeStateForbidden, "cannot complete migration %s of volume %s: it is being cancelled; cancel it once more if it needs that", p.Migration.ID, p.Migration.VolumeName)
		case PauseDone:
		}
		return p.over()
	})
}

func (p Pause) over() error {
	return api.Errorf(api.CodeNoMigration, "migration %s of volume %s is over: it is %s", p.Migration.ID, p.Migration.VolumeName, p.Migration.State).With("state", p.Migration.State)
}

// FinishPause ends a move of which nothing is left to do but what is lost: the volume
// is unlocked, and the end that it is not at is free.
func (s *Store) FinishPause(ctx context.Context, call Call, id string) (Pause, error) {
	return s.changePause(ctx, call, id, "migration.pause_finish", nil, func(ctx context.Context, tx *changeTx, p Pause) error {
		if p.Phase != PauseRestoring && p.Phase != PauseCancelling {
			return p.checkPhase(PauseRestoring)
		}
		if p.DropEnd != "" {
			return api.Errorf(api.CodeConflict, "the %s of migration %s is not removed yet", p.DropEnd, p.Migration.ID)
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
		if err := tx.execAll(ctx,
			sqlStep("UPDATE pauses SET phase = 'done' WHERE migration_id = ?", p.Migration.ID),
			sqlStep("UPDATE migrations SET state = ?, error = ?, finished_us = ? WHERE id = ?", state, fail, tx.at.UnixMicro(), p.Migration.ID),
		); err != nil {
			return err
		}
		// What the migration has reserved is dst before the flip and src after it.
		if err := tx.releaseDst(ctx, p.Migration); err != nil {
			return err
		}
		return tx.auditMigration(ctx, p.Migration, api.Event{What: "migration.transition", From: string(p.Migration.State), To: string(state)}, map[string]any{"error": why})
	})
}

// movePause brings a move into its next phase.
func (tx *changeTx) movePause(ctx context.Context, p Pause, to PausePhase, dropEnd string, why *api.Error) error {
	reason, err := encodeError(why)
	if err != nil {
		return err
	}
	if err := tx.execAll(ctx,
		sqlStep("UPDATE pauses SET phase = ?, attempt = 0, drop_end = ?, why = ?, error = NULL WHERE migration_id = ?", to, dropEnd, reason, p.Migration.ID),
		sqlStep("UPDATE pause_instances SET attempt = 0, error = NULL WHERE migration_id = ?", p.Migration.ID),
	); err != nil {
		return err
	}
	if err := tx.auditMigration(ctx, p.Migration, api.Event{What: "migration.phase", From: string(p.Phase), To: string(to), OpID: p.Migration.ID}, map[string]any{"error": why}); err != nil {
		return err
	}
	return tx.settlePauseState(ctx, p.Migration.ID)
}

// retryPause has what needs an operator tried again, by calls of other ids.
func (tx *changeTx) retryPause(ctx context.Context, p Pause) error {
	if p.Migration.State != api.MigrationNeedsOperator {
		return nil
	}
	if err := tx.execAll(ctx,
		sqlStep("UPDATE pauses SET attempt = attempt + 1, error = NULL WHERE migration_id = ? AND error IS NOT NULL", p.Migration.ID),
		sqlStep("UPDATE pause_instances SET attempt = attempt + 1, error = NULL WHERE migration_id = ? AND error IS NOT NULL", p.Migration.ID),
	); err != nil {
		return err
	}
	if err := tx.auditMigration(ctx, p.Migration, api.Event{What: "migration.retry", From: string(p.Migration.State), To: string(p.Phase.state())}, nil); err != nil {
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
	if stops := p.stops(); stops != nil {
		state, why = api.MigrationNeedsOperator, stops
	}
	fail, err := encodeError(why)
	if err != nil {
		return err
	}
	if err := tx.exec(ctx, "UPDATE migrations SET state = ?, error = ? WHERE id = ?", state, fail, id); err != nil {
		return err
	}
	if state == p.Migration.State {
		return nil
	}
	return tx.auditMigration(ctx, p.Migration, api.Event{What: "migration.transition", From: string(p.Migration.State), To: string(state)}, nil)
}

// stops is what stops a move until an operator says more, nil if it goes on.
func (p Pause) stops() *api.Error {
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
