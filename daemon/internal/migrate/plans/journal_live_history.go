// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"
	"encoding/json"

	"github.com/volferry/volferry/daemon/internal/migrate/led"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

func (h *journalHistory) Live(ctx context.Context, in *move.LiveInput, exceptOp string) (move.LiveHistory, error) {
	ops, err := h.journal.Group(ctx, in.Group())
	if err != nil {
		return move.LiveHistory{}, op.Retry(request.BusyDelay, request.JournalError(err))
	}
	var all move.LiveHistory
	copied := map[int]bool{}
	for _, o := range ops {
		if o.ID == exceptOp {
			continue
		}
		var of move.LiveInput
		if err := json.Unmarshal(o.Input, &of); err != nil {
			return move.LiveHistory{}, err
		}
		st, err := h.status(ctx, o.ID)
		if err != nil {
			return move.LiveHistory{}, op.Retry(request.BusyDelay, request.JournalError(err))
		}
		switch o.Kind {
		case move.KindLiveUntrack:
			all.Over = true
		case move.KindLiveEnd:
			all.Ended = max(all.Ended, of.Generation)
		default:
			addThrottle(&all, &st, &of)
			if of.Generation == in.Generation {
				addLive(&all, &st, &of, copied)
			}
		}
	}
	all.Copied, all.CopiedBefore = copied[all.Round], copied[all.Round-1]
	return all, nil
}

// addThrottle adds the write limits of an op, whatever its generation.
func addThrottle(a *move.LiveHistory, st *op.Status, of *move.LiveInput) {
	var tracked []move.TrackedGuest
	if st.Op.Kind == move.KindLiveTrack && move.DecodeOutput(st, led.TrackStep, &tracked) {
		if a.Before == nil {
			a.Before = map[string]move.TrackedGuest{}
		}
		for _, t := range tracked {
			a.Before[t.ID] = t
		}
	}
	if of.WriteBytesPerSecond > 0 {
		a.Throttles = append(a.Throttles, of.WriteBytesPerSecond)
	}
}

func addLive(a *move.LiveHistory, st *op.Status, of *move.LiveInput, copied map[int]bool) {
	done := st.State == op.StateDone
	switch st.Op.Kind {
	case move.KindLiveTrack:
		if done && move.DecodeOutput(st, led.TrackStep, &a.Tracked) {
			a.Since = st.FinishedAt
			var dst led.IdentifyDstOutput
			move.DecodeOutput(st, led.IdentifyDstStep, &dst)
			a.DstPrint = dst.Print
		}
	case move.KindLiveSwap:
		if done && of.Round >= a.Round {
			a.Round, a.Since = of.Round, st.FinishedAt
		}
	case move.KindLiveRound:
		copied[of.Round] = copied[of.Round] || done
	case move.KindLiveLastRead:
		a.Read, a.ReadDone = true, a.ReadDone || done
	}
}

// LiveOutcome returns the result of an ended op of a move while all guests write, otherwise nil.
func LiveOutcome(st *op.Status) *api.LiveOutcome {
	if st.State != op.StateDone {
		return nil
	}
	for _, step := range []string{led.CopyRoundStep, led.ReadLastStep, led.CopyLastStep} {
		var out api.LiveOutcome
		if move.DecodeOutput(st, step, &out) {
			return &out
		}
	}
	return nil
}

// TrackedProcess returns the guest's process that an op has begun to track, or "".
func TrackedProcess(st *op.Status, instanceID string) string {
	var tracked []move.TrackedGuest
	move.DecodeOutput(st, led.TrackStep, &tracked)
	for _, t := range tracked {
		if t.ID == instanceID {
			return t.Process
		}
	}
	return ""
}
