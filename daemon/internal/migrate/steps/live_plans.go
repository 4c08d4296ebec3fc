// SPDX-License-Identifier: Apache-2.0

package steps

import "github.com/volferry/volferry/internal/op"

// livePlans are this host's part of a move while all guests write. The registry leads, and each
// step that changes anything first asks it. A swap is never undone, nor is a copied round, since
// its old bitmaps are removed. Other undone steps can be repeated.
func (e *Env) livePlans() []op.Plan {
	generation := func(in *LiveInput) string { return in.generationPrefix() }
	all := func(in *LiveInput) string { return in.prefix() }
	return []op.Plan{
		{Kind: KindLiveTrack, Steps: []op.Step{
			e.admitLive(e.stepIdentifyDst(), whileCopying, turnToTrack),
			e.admitLive(e.stepGuardLive(), whileCopying, turnToTrack),
			e.admitLive(e.stepTrack(), whileCopying, turnToTrack),
			e.stepUnguardTracked(),
		}},
		{Kind: KindLiveSwap, Steps: []op.Step{
			e.admitLive(e.stepSwapLive(), whileCopying, turnToSwap),
		}},
		{Kind: KindLiveRound, Commit: copyRoundStep, Steps: []op.Step{
			e.admitLive(e.stepCopyRound(), whileCopying, turnToCopy),
			e.stepForgetRound(),
		}},
		{Kind: KindLiveLastRead, Steps: []op.Step{
			e.admitLive(e.stepReadLast(), whilePaused, turnToRead),
		}},
		{Kind: KindLiveLast, Steps: []op.Step{
			e.admitLive(e.stepCopyLast(), whilePaused, turnToCopyLast),
		}},
		{Kind: KindLiveEnd, Steps: []op.Step{
			e.stepEndLive(generation, func(in *LiveInput) string { return in.copyGeneration() }),
		}},
		{Kind: KindLiveUntrack, Steps: []op.Step{
			e.stepAdmitUntrack(),
			e.stepEndLive(all, func(in *LiveInput) string { return in.copyPrefix() }),
			e.stepUnguardAll(),
		}},
	}
}
