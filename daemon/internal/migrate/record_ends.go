// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
)

// recordEnds reports to the registry how those moves of this host ended that are over by the
// journal and open there: its database was restored from a backup of the time when they were under
// way. The oldest is first, since a later move of the volume begins where an earlier one has ended.
// An error says that the registry is away, or that this host has not rejoined; what the registry
// refuses is in the log.
func (m *Manager) recordEnds(ctx context.Context) error {
	_, err := m.recordEndsAt(ctx, slog.LevelWarn)
	return err
}

// recordEndsAt is recordEnds, which logs at a level what the registry refuses, and reports whether
// it refused any.
func (m *Manager) recordEndsAt(ctx context.Context, level slog.Level) (refused bool, err error) {
	rows, err := m.ports.Claims.Site.Migrations(ctx, "", false)
	if err != nil {
		return false, err
	}
	for _, row := range slices.Backward(rows) {
		h, err := m.loadHistory(ctx, row.ID)
		if api.CodeOf(err) == api.CodeNotFound {
			continue // of another host, or of a journal that is lost: nobody here knows its end
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

// keepEndsRecorded calls recordEnds now and whenever it is told to, until ctx ends. What the
// registry does not take is reported again, less and less often: it may wait for an operator there.
// It is a warning once.
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

// endsDelay bounds the delay between two reports of an end that the registry did not take.
const endsDelay = time.Minute

// recordEndsSoon has keepEndsRecorded look, if Run is called.
func (m *Manager) recordEndsSoon() {
	select {
	case m.endsDue <- struct{}{}:
	default: // it has a look to come
	}
}

// recordEnd reports to the registry how a move has ended, if its end is in the journal.
func (m *Manager) recordEnd(ctx context.Context, h *history) error {
	end, known := h.recordedEnd()
	if !known {
		return nil
	}
	last := &h.ops[len(h.ops)-1]
	return m.env.RecordEnd(ctx, &h.spec, last.Op.ID, end, last.why)
}

// recordedEnd returns the end of a move that this host made, and has brought to that end: the
// volume is at dst, or at src again. Of a move that the registry had ended, and of one that the
// registry leads, the journal does not know it.
func (h *history) recordedEnd() (end api.MigrationState, known bool) {
	if h.spec.LedByRegistry() || h.abandoned() != nil {
		return "", false
	}
	switch state, _ := h.state(); state {
	case api.MigrationCompleted, api.MigrationCancelled:
		return state, true
	case api.MigrationError:
		return state, h.find(steps.GoalStart).undone() && len(h.ops) == 1
	default:
		return "", false
	}
}
