// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
)

// liveNext has the phases that Pass can end, each with the phases that may follow it.
var liveNext = map[PausePhase][]PausePhase{
	PauseChecking: {PauseMaking},
	PauseTracking: {PauseCopying},
	PauseCopying:  {PauseSwapping, PauseSuspending},
	PauseSwapping: {PauseCopying},
	PauseAgain:    {PauseTracking},
	PauseLast:     {PauseSaving},
}

// Pass begins the next phase of a live move. All hosts must have completed the action of the phase
// before, and after PauseAgain all guests must be resumed at src. Pass refuses if an instance runs
// on a second host, because the writes there are not tracked.
func (s *LiveMoves) Pass(ctx context.Context, call store.Call, id string, from, to PausePhase) (Pause, error) {
	return s.pauses.change(ctx, call, id, "migration.live_"+string(to), from, func(ctx context.Context, tx *changeTx, p Pause) error {
		if err := p.checkPhase(from); err != nil {
			return err
		}
		switch {
		case p.Live == nil || !slices.Contains(liveNext[from], to):
			return api.Errorf(api.CodeConflict, "migration %s cannot go from %s to %s", p.Migration.ID, from, validate.Quote(string(to)))
		case !p.LiveReady():
			return p.notReady()
		}
		for _, g := range p.Instances {
			if from == PauseAgain && g.State != PauseRestored {
				return api.Errorf(api.CodeConflict, "instance %s is %s, not %s", g.Name, g.State, PauseRestored)
			}
			if err := tx.CheckNoSplitBrain("move volume "+p.Migration.VolumeName+" of instance "+g.Name, g.ID, g.Host.ID); err != nil {
				return err
			}
		}
		if err := tx.ExecAll(ctx, p.beyond(from, to, tx.At.UnixMicro())...); err != nil {
			return err
		}
		return tx.setPhase(ctx, p, to, api.DropDst, nil)
	})
}

func (p Pause) beyond(from, to PausePhase, now int64) []ledger.Step {
	id := p.Migration.ID
	switch {
	case to == PauseMaking:
		return []ledger.Step{ledger.SQL("UPDATE pause_instances SET state = ? WHERE migration_id = ?", PauseChecked, id)}
	case to == PauseSwapping:
		left, slow, throttled := p.Live.progress(p.Request.ThrottleWriters)
		return []ledger.Step{ledger.SQL("UPDATE live_moves SET round = round + 1, fruitless = 0, left_bytes = ?, slow = ?, throttled = ? WHERE migration_id = ?", left, slow, throttled, id)}
	case to == PauseSuspending:
		return []ledger.Step{
			ledger.SQL("UPDATE live_moves SET fruitless = 0 WHERE migration_id = ?", id),
			ledger.SQL("UPDATE pauses SET stopped_us = ? WHERE migration_id = ?", now, id),
		}
	case from == PauseAgain:
		return []ledger.Step{
			ledger.SQL("UPDATE live_moves SET generation = generation + 1, round = 0, left_bytes = 0, slow = 0, throttled = 0 WHERE migration_id = ?", id),
			ledger.SQL("UPDATE pauses SET stopped_us = 0, resuming = 0 WHERE migration_id = ?", id),
			ledger.SQL("UPDATE pause_instances SET state = ?, save_attempt = save_attempt + 1, save_from = save_attempt + 1, ran_us = 0 WHERE migration_id = ?", PauseChecked, id),
		}
	}
	return nil
}

// Made ends the phase making after the copy host has made dst, and begins tracking.
func (s *LiveMoves) Made(ctx context.Context, call store.Call, id string, dst api.Location) (Pause, error) {
	if err := validate.Location("destination", dst); err != nil {
		return Pause{}, err
	}
	return s.pauses.change(ctx, call, id, "migration.live_made", dst, func(ctx context.Context, tx *changeTx, p Pause) error {
		if err := p.checkPhase(PauseMaking); err != nil {
			return err
		}
		if !p.LiveReady() {
			return p.notReady()
		}
		if err := tx.checkReservedDst(ctx, p, dst); err != nil {
			return err
		}
		if err := tx.MoveReservation(ctx, p.Migration, dst); err != nil {
			return err
		}
		return tx.setPhase(ctx, p, PauseTracking, api.DropDst, nil)
	})
}

// mostTries bounds the failed copies (Live.Fruitless) and failed pauses (Live.CalledOff) of a
// move.
const mostTries = 3

// Again makes a live move copy the volume again, in a new generation, because a bitmap is missing
// or not all guests could be suspended. Suspended guests are resumed at src. After mostTries
// failures the move is cancelled instead.
func (s *LiveMoves) Again(ctx context.Context, call store.Call, id string, phase PausePhase, why *api.Error) (Pause, error) {
	return s.pauses.change(ctx, call, id, "migration.live_again", []any{phase, why}, func(ctx context.Context, tx *changeTx, p Pause) error {
		if err := p.checkPhase(phase); err != nil {
			return err
		}
		if p.Live == nil {
			return api.Errorf(api.CodeConflict, "migration %s has no generations", p.Migration.ID)
		}
		count, tries := "fruitless", p.Live.Fruitless+1
		switch p.Phase {
		case PauseTracking, PauseCopying, PauseSwapping:
		case PauseSuspending, PauseLast:
			count, tries = "called_off", p.Live.CalledOff+1
		case PauseChecking, PauseMaking, PauseSaving, PauseRestoring, PauseCancelling, PauseAgain, PauseDone:
			return api.Errorf(api.CodeConflict, "migration %s cannot begin again from %s", p.Migration.ID, p.Phase).With("phase", p.Phase)
		}
		if tries >= mostTries {
			return tx.setPhase(ctx, p, PauseCancelling, p.DropEnd, why)
		}
		if err := tx.Exec(ctx, "UPDATE live_moves SET "+count+" = ? WHERE migration_id = ?", tries, p.Migration.ID); err != nil {
			return err
		}
		return tx.setPhase(ctx, p, PauseAgain, p.DropEnd, why)
	})
}
