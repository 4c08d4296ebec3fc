// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// noteStep records a step of a pause, and ignores phases without paused guests.
func (tx *changeTx) noteStep(ctx context.Context, p Pause, to PausePhase, step api.PauseStep) error {
	return tx.noteStepOf(ctx, p, to, step, 0)
}

func (tx *changeTx) noteStepOf(ctx context.Context, p Pause, to PausePhase, step api.PauseStep, bytes int64) error {
	switch to {
	case PauseChecking, PauseMaking, PauseTracking, PauseCopying, PauseSwapping:
		if p.Live != nil || to == PauseChecking {
			return nil
		}
	case PauseDone:
		return nil
	case PauseSuspending, PauseLast, PauseSaving, PauseRestoring, PauseCancelling, PauseAgain:
	}
	return tx.Exec(ctx, `INSERT INTO pause_steps (migration_id, seq, at_us, phase, reached, host, instance, took_ms, bytes)
		VALUES (?, (SELECT COUNT(*) FROM pause_steps WHERE migration_id = ?), ?, ?, ?, ?, ?, ?, ?)`,
		p.Migration.ID, p.Migration.ID, tx.At.UnixMicro(), to, step.Reached, step.Host, step.Instance, step.TookMS, bytes)
}

// Steps returns the steps of a move's pauses, oldest first; none for a migration that a host runs.
func (s *Pauses) Steps(ctx context.Context, id string) ([]api.PauseStep, error) {
	return ledger.QueryAll(ctx, s.db.Reader(), scanPauseStep, "SELECT at_us, phase, reached, host, instance, took_ms FROM pause_steps WHERE migration_id = ? ORDER BY seq", id)
}

func scanPauseStep(row ledger.Scanner) (api.PauseStep, error) {
	var (
		step api.PauseStep
		at   int64
	)
	err := row.Scan(&at, &step.Phase, &step.Reached, &step.Host, &step.Instance, &step.TookMS)
	step.At = time.UnixMicro(at).UTC()
	return step, err
}
