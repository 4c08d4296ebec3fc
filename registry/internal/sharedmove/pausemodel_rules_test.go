// SPDX-License-Identifier: Apache-2.0

package sharedmove

import "testing"

func TestAPauseThatIsCutOffAnywhereLosesNothing(t *testing.T) {
	wantHolds(t, pauseModel{})
}

func TestAPauseWithoutOneRuleLosesSomething(t *testing.T) {
	for _, c := range []struct {
		name   string
		model  pauseModel
		claims []string
	}{
		{
			"a guest runs on before all can, and a failure leads back to src",
			pauseModel{resumeEarly: true, backAfterDecision: true},
			[]string{lost},
		},
		{
			"a guest runs on before all can, and the other is restored later",
			pauseModel{resumeEarly: true, restoreLate: true},
			[]string{stale},
		},
		{
			"the decision is not stored before guests are restored on dst",
			pauseModel{decisionInMemory: true},
			[]string{lost, split},
		},
		{
			"a host restores its guest by itself",
			pauseModel{wakeAlone: true},
			[]string{lost, split},
		},
		{
			"a host does not ask before it restores a guest",
			pauseModel{restoreLate: true},
			[]string{stale},
		},
	} {
		for _, claim := range c.claims {
			t.Run(c.name+": "+claim, func(t *testing.T) {
				m := c.model
				m.claim = claim
				wantBroken(t, m, claim)
			})
		}
	}
}
