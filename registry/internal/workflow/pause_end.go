// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"cmp"
	"context"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
)

func (tx *changeTx) checkGuests(verb string, p Pause) error {
	for _, g := range p.Instances {
		if err := CheckGuest(tx.Call, verb+" migration "+p.Migration.ID, g); err != nil {
			return err
		}
	}
	return nil
}

// Cancel ends a move at src. why is the reason, nil for an operator's request. After Flip, Cancel
// returns past_point_of_no_return. An operator's request also retries a cancel in state
// needs_operator.
func (s *Pauses) Cancel(ctx context.Context, call store.Call, ref string, why *api.Error) (Pause, error) {
	return s.change(ctx, call, ref, "migration.pause_cancel", why, func(ctx context.Context, tx *changeTx, p Pause) error {
		if err := tx.checkGuests("cancel", p); err != nil {
			return err
		}
		switch p.Phase {
		case PauseAgain:
			if err := tx.unlockRestored(ctx, p); err != nil {
				return err
			}
			return tx.setPhase(ctx, p, PauseCancelling, p.DropEnd, why)
		case PauseChecking, PauseSuspending, PauseSaving, PauseCopying, PauseMaking, PauseTracking, PauseSwapping, PauseLast:
			return tx.setPhase(ctx, p, PauseCancelling, p.DropEnd, why)
		case PauseCancelling:
			if why != nil {
				return nil //nolint:nilerr // only an operator tries again
			}
			return tx.retryPause(ctx, p)
		case PauseRestoring:
			return api.Errorf(api.CodePastPointOfNoReturn, "cannot cancel migration %s: volume %s is at %s already, and its guests are being woken there; migrate it back after that",
				p.Migration.ID, p.Migration.VolumeName, store.Place(p.Migration.Dst))
		case PauseDone:
		}
		return p.refuseOver()
	})
}

func (tx *changeTx) unlockRestored(ctx context.Context, p Pause) error {
	for _, g := range p.Instances {
		if g.State != PauseRestored {
			continue
		}
		if err := tx.unlockGuest(ctx, g.ID, p.Migration.ID); err != nil {
			return err
		}
	}
	return nil
}

// Complete retries the restoring of guests, in a move that needs an operator after Flip. Before
// Flip it refuses, because the move continues by itself.
func (s *Pauses) Complete(ctx context.Context, call store.Call, ref string) (Pause, error) {
	return s.change(ctx, call, ref, "migration.pause_complete", nil, func(ctx context.Context, tx *changeTx, p Pause) error {
		if err := tx.checkGuests("complete", p); err != nil {
			return err
		}
		switch p.Phase {
		case PauseRestoring:
			return tx.retryPause(ctx, p)
		case PauseChecking, PauseSuspending, PauseSaving, PauseCopying, PauseMaking, PauseTracking, PauseSwapping, PauseAgain, PauseLast:
			return api.Errorf(api.CodeStateForbidden, "cannot complete migration %s of volume %s: it is %s and goes on by itself", p.Migration.ID, p.Migration.VolumeName, p.Phase)
		case PauseCancelling:
			return api.Errorf(api.CodeStateForbidden, "cannot complete migration %s of volume %s: it is being cancelled; cancel it once more if it needs that", p.Migration.ID, p.Migration.VolumeName)
		case PauseDone:
		}
		return p.refuseOver()
	})
}

func (p Pause) refuseOver() error {
	return api.Errorf(api.CodeNoMigration, "migration %s of volume %s is over: it is %s", p.Migration.ID, p.Migration.VolumeName, p.Migration.State).With("state", p.Migration.State)
}

// retryPause repeats the failed calls of a move that needs an operator, with new ids. It refuses,
// with the right command, if a guest's memory may not be restored any more.
func (tx *changeTx) retryPause(ctx context.Context, p Pause) error {
	if p.Migration.State != api.MigrationNeedsOperator {
		return nil
	}
	var barred error
	for _, g := range p.Instances {
		if g.Error != nil {
			barred = cmp.Or(barred, p.barred(g, tx.At))
		}
	}
	if barred != nil && p.Error == nil {
		return barred
	}
	if err := tx.ExecAll(ctx,
		ledger.SQL("UPDATE pauses SET attempt = attempt + 1, error = NULL WHERE migration_id = ? AND error IS NOT NULL", p.Migration.ID),
		ledger.SQL("UPDATE pause_instances SET attempt = attempt + 1, error = NULL WHERE migration_id = ? AND error IS NOT NULL", p.Migration.ID),
		ledger.SQL("UPDATE live_hosts SET error = NULL WHERE migration_id = ? AND error IS NOT NULL", p.Migration.ID),
	); err != nil {
		return err
	}
	return tx.auditRetry(ctx, p, nil)
}

func (tx *changeTx) auditRetry(ctx context.Context, p Pause, details map[string]any) error {
	if err := tx.AuditMigration(ctx, p.Migration, api.Event{What: "migration.retry", From: string(p.Migration.State), To: string(p.state())}, details); err != nil {
		return err
	}
	return tx.settlePauseState(ctx, p.Migration.ID)
}

// Discard discards, for an operator, the memory of guests that may not be restored any more or
// were lost with their host. These guests are then stopped, as after a power cut, and may be
// started. Other failed guests are tried again with their memory. If all failed guests may still
// be restored, Discard discards their memory. It returns state_forbidden if none has failed.
func (s *Pauses) Discard(ctx context.Context, call store.Call, ref string) (Pause, error) {
	return s.change(ctx, call, ref, "migration.pause_discard", nil, func(ctx context.Context, tx *changeTx, p Pause) error {
		if err := tx.checkGuests("discard memory of", p); err != nil {
			return err
		}
		gone, failed := p.memoryToGiveUp(tx.At)
		if len(gone) == 0 {
			gone, failed = failed, nil
		}
		if len(gone) == 0 {
			return api.Errorf(api.CodeStateForbidden, "migration %s of volume %s has no guest whose memory would have to be given up", p.Migration.ID, p.Migration.VolumeName)
		}
		names := []string{}
		for _, g := range gone {
			names = append(names, g.Name)
			if err := tx.Exec(ctx, "UPDATE pause_instances SET state = ?, discard = 1, attempt = attempt + 1, error = NULL WHERE migration_id = ? AND instance_id = ?",
				PauseSaved, p.Migration.ID, g.ID); err != nil {
				return err
			}
		}
		for _, g := range failed {
			if err := tx.Exec(ctx, "UPDATE pause_instances SET attempt = attempt + 1, error = NULL WHERE migration_id = ? AND instance_id = ?", p.Migration.ID, g.ID); err != nil {
				return err
			}
		}
		return tx.auditRetry(ctx, p, map[string]any{"discard_memory": names})
	})
}

// memoryToGiveUp returns as gone the guests with memory that may not be restored any more, and as
// failed the other failed guests.
func (p Pause) memoryToGiveUp(now time.Time) (gone, failed []PauseInstance) {
	if p.Phase != PauseRestoring && p.Phase != PauseCancelling && p.Phase != PauseDone {
		return nil, nil
	}
	for _, g := range p.Instances {
		switch {
		case g.State == PauseRestored:
		case g.Lost, p.hasToStartAnew(g, now):
			gone = append(gone, g)
		case g.Error != nil:
			failed = append(failed, g)
		}
	}
	return gone, failed
}

// Finish ends a move when all guests except lost ones are restored. It unlocks the volume, and
// frees src if the volume is at dst, else dst.
func (s *Pauses) Finish(ctx context.Context, call store.Call, id string) (Pause, error) {
	return s.change(ctx, call, id, "migration.pause_finish", nil, func(ctx context.Context, tx *changeTx, p Pause) error {
		if p.Phase != PauseRestoring && p.Phase != PauseCancelling {
			return p.checkPhase(PauseRestoring)
		}
		if p.DropEnd != "" {
			return api.Errorf(api.CodeConflict, "the %s of migration %s is not removed yet", p.DropEnd, p.Migration.ID)
		}
		if p.Live != nil && !p.LiveReady() {
			return p.notReady()
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
		// ReleaseDst frees the migration's reservation: dst before the flip, src after it.
		if err := tx.ReleaseDst(ctx, p.Migration); err != nil {
			return err
		}
		return tx.AuditMigration(ctx, p.Migration, api.Event{What: "migration.transition", From: string(p.Migration.State), To: string(state)}, map[string]any{"error": why})
	})
}
