// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
)

// recordEnds reports how moves of this host have ended, if they are open at a registry that was
// restored from a backup. It begins with the oldest, since a later move of the volume begins where
// an earlier one ended. It returns an error if the registry is unavailable, or this host has not
// rejoined; it logs refusals.
func (m *Manager) recordEnds(ctx context.Context) error {
	_, err := m.recordEndsAt(ctx, slog.LevelWarn)
	return err
}

// recordEndsAt is recordEnds with a log level for refusals, and reports whether there was a
// refusal.
func (m *Manager) recordEndsAt(ctx context.Context, level slog.Level) (refused bool, err error) {
	rows, err := m.ports.Claims.Site.Migrations(ctx, "", false)
	if err != nil {
		return false, err
	}
	for _, row := range slices.Backward(rows) {
		h, err := m.History.Load(ctx, row.ID)
		if api.CodeOf(err) == api.CodeNotFound {
			continue // another host's, or of a lost journal
		}
		if err == nil {
			err = m.recordEnd(ctx, h)
		}
		if request.Away(err) || api.CodeOf(err) == api.CodeStaleEpoch {
			return refused, err
		}
		if err != nil {
			refused = true
			m.log.Log(ctx, level, "cannot report to the registry how a move has ended that is open there", "migration", row.ID, "err", err)
		}
	}
	return refused, nil
}

// keepEndsRecorded calls recordEnds now and after each recordEndsSoon, until ctx ends. It repeats
// a refused report, which may wait for an operator at the registry, at growing intervals. Only the
// first refusal is a warning.
func (m *Manager) keepEndsRecorded(ctx context.Context) {
	backoff := retry.Backoff{First: replanDelay, Max: endsDelay}
	level := slog.LevelWarn
	for ctx.Err() == nil {
		var again <-chan time.Time
		refused, err := m.recordEndsAt(ctx, level)
		if refused || err != nil {
			again = time.After(backoff.Next())
		}
		if refused {
			level = slog.LevelDebug
		}
		select {
		case <-ctx.Done():
		case <-again:
		case <-m.endsDue:
			backoff.Reset()
			level = slog.LevelWarn
		}
	}
}

const endsDelay = time.Minute

func (m *Manager) recordEndsSoon() {
	select {
	case m.endsDue <- struct{}{}:
	default: // a look is pending
	}
}

func (m *Manager) recordEnd(ctx context.Context, h *history.Migration) error {
	end, known := recordedEnd(h)
	if !known {
		return nil
	}
	last := &h.Ops[len(h.Ops)-1]
	return m.env.Place.RecordEnd(ctx, &h.Spec, last.Op.ID, end, last.Why)
}

// recordedEnd returns the end of a move by this host's journal: the volume is at dst, or at src
// again. known is false for an open move, and for a move that the registry leads or has ended
// itself.
func recordedEnd(h *history.Migration) (end api.MigrationState, known bool) {
	if h.Spec.LedByRegistry() || h.Abandoned() != nil {
		return "", false
	}
	switch state, _ := h.State(); state {
	case api.MigrationCompleted, api.MigrationCancelled:
		return state, true
	case api.MigrationError:
		return state, h.Find(move.GoalStart).Undone() && len(h.Ops) == 1
	default:
		return "", false
	}
}
