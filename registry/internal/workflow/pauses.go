// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
)

// Pauses are the moves that the registry runs by calls to hosts: with all guests paused, and live
// moves, which have further changes of their own (LiveMoves).
type Pauses struct {
	db      *store.DB
	changed *ledger.Notifier
}

// Pause is the stored state of a move with all guests paused, or of a live move.
type Pause struct {
	Migration api.Migration
	Phase     PausePhase
	Request   api.MigrationTarget
	// CopyHost makes and removes dst.
	CopyHost PauseHost
	Attempt  int
	// DropEnd is what the copy host must still remove: api.DropSrc, api.DropDst or "".
	DropEnd string
	// Why is the reason for cancelling the move. Error is the copy host's error.
	Why, Error *api.Error
	// StoppedAt is when suspending the guests began, or zero.
	StoppedAt time.Time
	// Resuming means that all guests that can be restored are restored, and may be resumed.
	Resuming  bool
	Instances []PauseInstance
	// Live is nil if the guests are paused for the whole copy.
	Live *Live
}

func (p Pause) state() api.MigrationState {
	switch p.Phase {
	case PauseChecking, PauseMaking:
		return api.MigrationStarting
	case PauseSuspending, PauseSaving:
		if p.Live == nil {
			return api.MigrationStarting
		}
		return api.MigrationCompleting
	case PauseTracking, PauseCopying, PauseSwapping, PauseAgain:
		return api.MigrationCopying
	case PauseLast, PauseRestoring:
		return api.MigrationCompleting
	case PauseCancelling, PauseDone:
	}
	return api.MigrationCancelling
}

// The states of an instance in a Pause, in order. A pending or checked instance is untouched. A
// suspended guest is paused. A saved guest may have to be restored. A ready guest is restored and
// paused. A restored guest is as before the move.
const (
	PausePending   = "pending"
	PauseChecked   = "checked"
	PauseSuspended = "suspended"
	PauseSaved     = "saved"
	PauseReady     = "ready"
	PauseRestored  = "restored"
)

// PauseInstance is the state of a guest in a Pause.
type PauseInstance struct {
	ID, Name string
	Host     PauseHost
	State    string
	// Lost means that its host was fenced, so the move does not wait for it.
	Lost     bool
	Attached bool
	// SaveAttempt and Attempt count the repeated calls to save and to restore the guest. SaveFrom
	// is SaveAttempt at the start of this pause: earlier calls have ended. Error blocks the guest.
	SaveAttempt, SaveFrom, Attempt int
	Error                          *api.Error
	// Writes means that the guest may write to a volume that it shares. RanAt is the time when it
	// was resumed, zero if it was not.
	Writes bool
	RanAt  time.Time
	// MemoryBytes is the size of its saved RAM, 0 if unknown.
	MemoryBytes int64
	// Took is the duration of its host's work to reach the state, for Pauses.SetInstance only.
	Took time.Duration
	// Discard means that an operator has discarded its memory.
	Discard bool
}

// Open returns, in order of ids, the moves that the loop has to advance: moves that are not done,
// and moves with a lost instance that may still return.
func (s *Pauses) Open(ctx context.Context) ([]Pause, error) {
	return ledger.View(ctx, s.db.Reader(), func(q ledger.Querier) ([]Pause, error) {
		ids, err := ledger.QueryAll(ctx, q, ledger.ScanString, `SELECT migration_id FROM pauses WHERE phase <> 'done'
			UNION SELECT migration_id FROM pause_instances WHERE lost = 1 AND state <> 'restored' ORDER BY migration_id`)
		if err != nil {
			return nil, err
		}
		pauses := make([]Pause, 0, len(ids))
		for _, id := range ids {
			p, err := pauseByID(ctx, q, id)
			if err != nil {
				return nil, err
			}
			pauses = append(pauses, p)
		}
		return pauses, nil
	})
}

// Get returns the move with the migration that ref names. It returns not_found for a migration
// that a host runs.
func (s *Pauses) Get(ctx context.Context, ref string) (Pause, error) {
	return store.ViewOne(ctx, s.db, store.KindMigration, ref, pauseByID)
}

func pauseByID(ctx context.Context, q ledger.Querier, id string) (Pause, error) {
	m, err := store.MigrationByID(ctx, q, id)
	if err != nil {
		return Pause{}, err
	}
	if !m.LedByRegistry() {
		return Pause{}, api.Errorf(api.CodeNotFound, "migration %s of volume %s does not pause its guests", m.ID, m.VolumeName)
	}
	p := Pause{Migration: m}
	var (
		request, why, fail []byte
		stopped            int64
	)
	if err := q.QueryRowContext(ctx, `SELECT p.phase, p.request, p.attempt, p.drop_end, p.why, p.error, p.stopped_us, p.resuming, h.id, h.name, h.fenced
		FROM pauses p JOIN migrations m ON m.id = p.migration_id JOIN hosts h ON h.id = m.host_id WHERE p.migration_id = ?`, id).
		Scan(&p.Phase, &request, &p.Attempt, &p.DropEnd, &why, &fail, &stopped, &p.Resuming, &p.CopyHost.ID, &p.CopyHost.Name, &p.CopyHost.Fenced); err != nil {
		return p, fmt.Errorf("read move with all guests paused %s: %w", id, err)
	}
	p.StoppedAt = timeOrZero(stopped)
	if err := json.Unmarshal(request, &p.Request); err != nil {
		return p, fmt.Errorf("decode request: %w", err)
	}
	if p.Why, err = decodeError(why); err != nil {
		return p, err
	}
	if p.Error, err = decodeError(fail); err != nil {
		return p, err
	}
	p.Instances, err = ledger.QueryAll(ctx, q, scanPauseInstance, pauseInstanceQuery+" WHERE g.migration_id = ? ORDER BY h.name, g.instance_id", id)
	if err != nil || m.Method != api.MethodLive {
		return p, err
	}
	p.Live, err = readLive(ctx, q, id)
	return p, err
}

const pauseInstanceQuery = `SELECT g.instance_id, COALESCE(i.name, g.instance_id), h.id, h.name, h.fenced, g.state, g.lost,
		EXISTS (SELECT 1 FROM attachments a JOIN migrations m ON m.id = g.migration_id WHERE a.volume_id = m.volume_id AND a.instance_id = g.instance_id),
		g.save_attempt, g.save_from, g.attempt, g.error, g.writes, g.ran_us, g.discard, g.memory_bytes
	FROM pause_instances g
	JOIN hosts h ON h.id = g.host_id
	LEFT JOIN instances i ON i.id = g.instance_id`

func scanPauseInstance(row ledger.Scanner) (PauseInstance, error) {
	var (
		g    PauseInstance
		fail []byte
		ran  int64
	)
	if err := row.Scan(&g.ID, &g.Name, &g.Host.ID, &g.Host.Name, &g.Host.Fenced, &g.State, &g.Lost, &g.Attached, &g.SaveAttempt, &g.SaveFrom, &g.Attempt, &fail, &g.Writes, &ran, &g.Discard, &g.MemoryBytes); err != nil {
		return g, err
	}
	g.RanAt = timeOrZero(ran)
	var err error
	g.Error, err = decodeError(fail)
	return g, err
}
