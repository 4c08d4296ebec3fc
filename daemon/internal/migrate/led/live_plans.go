// SPDX-License-Identifier: Apache-2.0

package led

import (
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
)

// LivePlans are the plans of this host's part of a move while all guests write. Steps that track,
// swap bitmaps or copy first ask the registry, which leads, whether they are still wanted. No swap
// is undone, and no copied round, since the bitmaps that the round copied are removed. Other
// undone steps can be repeated.
func (e *Env) LivePlans() []op.Plan {
	generation := func(in *move.LiveInput) string { return in.GenerationPrefix() }
	all := func(in *move.LiveInput) string { return in.Prefix() }
	return []op.Plan{
		{Kind: move.KindLiveTrack, Steps: []op.Step{
			e.admitLive(e.stepIdentifyDst(), whileCopying, turnToTrack),
			e.admitLive(e.stepGuardLive(), whileCopying, turnToTrack),
			e.admitLive(e.stepTrack(), whileCopying, turnToTrack),
			e.stepUnguardTracked(),
		}},
		{Kind: move.KindLiveSwap, Steps: []op.Step{
			e.admitLive(e.stepSwapLive(), whileCopying, turnToSwap),
		}},
		{Kind: move.KindLiveRound, Commit: CopyRoundStep, Steps: []op.Step{
			e.admitLive(e.stepCopyRound(), whileCopying, turnToCopy),
			e.stepForgetRound(),
		}},
		{Kind: move.KindLiveLastRead, Steps: []op.Step{
			e.admitLive(e.stepReadLast(), whilePaused, turnToRead),
		}},
		{Kind: move.KindLiveLast, Steps: []op.Step{
			e.admitLive(e.stepCopyLast(), whilePaused, turnToCopyLast),
		}},
		{Kind: move.KindLiveEnd, Steps: []op.Step{
			e.stepEndLive(generation, func(in *move.LiveInput) string { return in.CopyGeneration() }),
		}},
		{Kind: move.KindLiveUntrack, Steps: []op.Step{
			e.stepAdmitUntrack(),
			e.stepEndLive(all, func(in *move.LiveInput) string { return in.CopyPrefix() }),
			e.stepUnguardAll(),
		}},
	}
}
