// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
)

var pauseInstanceNext = map[PausePhase]map[string][]string{
	PauseChecking:   {PausePending: {PauseChecked}},
	PauseSuspending: {PauseChecked: {PauseSuspended}},
	PauseSaving:     {PauseSuspended: {PauseSaved}},
	PauseCopying:    {},
	PauseRestoring:  {PauseSaved: {PauseReady}, PauseReady: {PauseRestored}},
	PauseCancelling: cancellingNext,
	PauseDone:       cancellingNext,
	PauseAgain:      cancellingNext,
}

// cancellingNext has the states that may follow each state while a move is cancelled. Results of
// earlier calls to suspend and save may still be unknown. An untouched instance becomes restored
// at once.
var cancellingNext = map[string][]string{
	PausePending:   {PauseSuspended, PauseSaved, PauseRestored},
	PauseChecked:   {PauseSuspended, PauseSaved, PauseRestored},
	PauseSuspended: {PauseSaved, PauseReady},
	PauseSaved:     {PauseReady},
	PauseReady:     {PauseRestored},
}

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

// SetInstance records the state, attempts and error of an instance of a move, and whether it is
// lost (its host was fenced) or was resumed (RanAt is not zero). It returns conflict if the phase
// has changed or the state may not follow the present one. It unlocks a restored instance.
func (s *Pauses) SetInstance(ctx context.Context, call store.Call, id string, phase PausePhase, g PauseInstance) (Pause, error) {
	return s.change(ctx, call, id, "migration.pause_instance", []any{phase, g}, func(ctx context.Context, tx *changeTx, p Pause) error {
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
			// It was never suspended, or was resumed without the registry.
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
		if g.State != was.State {
			if err := tx.noteStepOf(ctx, p, p.Phase, api.PauseStep{Reached: g.State, Host: was.Host.Name, Instance: was.Name, TookMS: g.Took.Milliseconds()}, was.MemoryBytes); err != nil {
				return err
			}
		}
		if g.Lost && g.Error != nil {
			if err := tx.explainLost(ctx, p, was); err != nil {
				return err
			}
		}
		if g.State == PauseRestored && p.Phase != PauseAgain {
			if err := tx.unlockGuest(ctx, g.ID, p.Migration.ID); err != nil {
				return err
			}
		}
		return tx.settlePauseState(ctx, p.Migration.ID)
	})
}

// explainLost adds the operator's commands to the lock reason of an instance that is lost (its
// host was fenced).
func (tx *changeTx) explainLost(ctx context.Context, p Pause, g PauseInstance) error {
	i, err := store.InstanceByID(ctx, tx, g.ID)
	if err != nil || i.LockedBy != p.Migration.ID {
		return err
	}
	return tx.ExplainLock(ctx, i, fmt.Sprintf("host %s was fenced while it was put to rest for the move of volume %s, and its memory is not restored; %s", g.Host.Name, p.Migration.VolumeName, p.discardAdvice(g)))
}

func samePauseInstance(was, g PauseInstance) bool {
	return was.State == g.State && was.Lost == g.Lost && was.SaveAttempt == g.SaveAttempt && was.Attempt == g.Attempt && was.Error == nil && g.Error == nil &&
		(g.RanAt.IsZero() || !was.RanAt.IsZero())
}
