// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
)

// LiveMoves has the changes that only live moves have.
type LiveMoves struct{ pauses *Pauses }

// LiveAnswer is the result of a call to a host. If Done is false, the call was undone, refused or
// withdrawn, and the host will not continue it.
type LiveAnswer struct {
	Done          bool
	Dirty, Copied int64
	TookMS        int64
	// Memory is, for a check, the RAM of each instance in bytes, by instance id.
	Memory map[string]int64
	Worked time.Duration
	// Error must be resolved by an operator before the call is repeated.
	Error *api.Error
}

// Ask records a call before it is made. It returns conflict if the move does not need this call in
// this phase, or if the host may still be executing an earlier one.
func (s *LiveMoves) Ask(ctx context.Context, call store.Call, id string, phase PausePhase, hostID string, c LiveCall) (Pause, error) {
	return s.pauses.change(ctx, call, id, "migration.live_ask", []any{phase, hostID, c}, func(ctx context.Context, tx *changeTx, p Pause) error {
		if err := p.checkPhase(phase); err != nil {
			return err
		}
		h, err := p.liveHost(hostID)
		if err != nil {
			return err
		}
		want, left := p.LiveNext(h)
		switch {
		case h.State == LiveAsked && h.Call == c && left:
			return nil
		case h.State == LiveAsked:
			return api.Errorf(api.CodeConflict, "host %s may still be doing the last thing that migration %s asked of it", h.Name, p.Migration.ID)
		case !left || want != c:
			return api.Errorf(api.CodeConflict, "migration %s does not want that of host %s now", p.Migration.ID, h.Name).With("phase", p.Phase)
		}
		if err := tx.Exec(ctx, "UPDATE live_hosts SET verb = ?, generation = ?, round = ?, attempt = ?, state = 'asked', error = NULL WHERE migration_id = ? AND host_id = ?",
			c.Verb, c.Generation, c.Round, c.Attempt, p.Migration.ID, h.ID); err != nil {
			return err
		}
		return tx.settlePauseState(ctx, p.Migration.ID)
	})
}

// Answer records the result of a call, in any phase. It returns conflict if the result is
// already known.
func (s *LiveMoves) Answer(ctx context.Context, call store.Call, id, hostID string, c LiveCall, a LiveAnswer) (Pause, error) {
	return s.pauses.change(ctx, call, id, "migration.live_answer", []any{hostID, c, a}, func(ctx context.Context, tx *changeTx, p Pause) error {
		h, err := p.liveHost(hostID)
		if err != nil {
			return err
		}
		if h.State != LiveAsked || h.Call != c {
			return api.Errorf(api.CodeConflict, "it is known how that call of host %s for migration %s ended", h.Name, p.Migration.ID)
		}
		state := LiveEnded
		if a.Done {
			state = LiveDone
		}
		fail, err := encodeError(a.Error)
		if err != nil {
			return err
		}
		set := ledger.SQL("UPDATE live_hosts SET state = ?, error = ? WHERE migration_id = ? AND host_id = ?", state, fail, p.Migration.ID, h.ID)
		if a.Done && c.Verb == LiveRound {
			set = ledger.SQL("UPDATE live_hosts SET state = ?, error = ?, dirty_bytes = ?, copied_bytes = ?, took_ms = ? WHERE migration_id = ? AND host_id = ?",
				state, fail, a.Dirty, a.Copied, a.TookMS, p.Migration.ID, h.ID)
		}
		if err := tx.ExecAll(ctx, set); err != nil {
			return err
		}
		for _, g := range p.Instances {
			if bytes, said := a.Memory[g.ID]; said && g.Host.ID == h.ID && bytes >= 0 {
				if err := tx.Exec(ctx, "UPDATE pause_instances SET memory_bytes = ? WHERE migration_id = ? AND instance_id = ?", bytes, p.Migration.ID, g.ID); err != nil {
					return err
				}
			}
		}
		if a.Done {
			if err := tx.noteStep(ctx, p, p.Phase, api.PauseStep{Reached: string(c.Verb), Host: h.Name, TookMS: a.Worked.Milliseconds()}); err != nil {
				return err
			}
		}
		return tx.settlePauseState(ctx, p.Migration.ID)
	})
}

func (p Pause) liveHost(id string) (LiveHost, error) {
	if p.Live != nil {
		if at := slices.IndexFunc(p.Live.Hosts, func(h LiveHost) bool { return h.ID == id }); at >= 0 {
			return p.Live.Hosts[at], nil
		}
	}
	return LiveHost{}, api.Errorf(api.CodeNotFound, "migration %s asks nothing of host %s", p.Migration.ID, validate.Quote(id))
}
