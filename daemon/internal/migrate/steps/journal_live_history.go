// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"encoding/json"

	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// Live implements History.
func (h *journalHistory) Live(ctx context.Context, in *LiveInput, exceptOp string) (LiveHistory, error) {
	ops, err := h.journal.Group(ctx, in.Group())
	if err != nil {
		return LiveHistory{}, op.Retry(request.BusyDelay, request.JournalError(err))
	}
	var all LiveHistory
	copied := map[int]bool{}
	for _, o := range ops {
		if o.ID == exceptOp {
			continue
		}
		var of LiveInput
		if err := json.Unmarshal(o.Input, &of); err != nil {
			return LiveHistory{}, err
		}
		st, err := h.status(ctx, o.ID)
		if err != nil {
			return LiveHistory{}, op.Retry(request.BusyDelay, request.JournalError(err))
		}
		switch o.Kind {
		case KindLiveUntrack:
			all.Over = true
		case KindLiveEnd:
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

// addThrottle adds the limits on writes of an op of any generation.
func addThrottle(a *LiveHistory, st *op.Status, of *LiveInput) {
	var tracked []TrackedGuest
	if st.Op.Kind == KindLiveTrack && decodeOutput(st, trackStep, &tracked) {
		if a.Before == nil {
			a.Before = map[string]TrackedGuest{}
		}
		for _, t := range tracked {
			a.Before[t.ID] = t
		}
	}
	if of.WriteBytesPerSecond > 0 {
		a.Throttles = append(a.Throttles, of.WriteBytesPerSecond)
	}
}

func addLive(a *LiveHistory, st *op.Status, of *LiveInput, copied map[int]bool) {
	done := st.State == op.StateDone
	switch st.Op.Kind {
	case KindLiveTrack:
		if done && decodeOutput(st, trackStep, &a.Tracked) {
			a.Since = st.FinishedAt
			var dst identifyDstOutput
			decodeOutput(st, identifyDstStep, &dst)
			a.DstPrint = dst.Print
		}
	case KindLiveSwap:
		if done && of.Round >= a.Round {
			a.Round, a.Since = of.Round, st.FinishedAt
		}
	case KindLiveRound:
		copied[of.Round] = copied[of.Round] || done
	case KindLiveLastRead:
		a.Read, a.ReadDone = true, a.ReadDone || done
	}
}

// LiveOutcome returns the result of an op, nil if it has none.
func LiveOutcome(st *op.Status) *api.LiveOutcome {
	for _, step := range []string{copyRoundStep, readLastStep, copyLastStep} {
		var out api.LiveOutcome
		if decodeOutput(st, step, &out) {
			return &out
		}
	}
	return nil
}

// TrackedProcess returns the guest's process that an op has begun to track, "" if it has not.
func TrackedProcess(st *op.Status, instanceID string) string {
	var tracked []TrackedGuest
	decodeOutput(st, trackStep, &tracked)
	for _, t := range tracked {
		if t.ID == instanceID {
			return t.Process
		}
	}
	return ""
}
