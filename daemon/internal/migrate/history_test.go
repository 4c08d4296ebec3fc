// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

func TestAMirrorThatFailedIsShownAsCancelledFromThenOn(t *testing.T) {
	ended := func(g goal, state op.State) opView {
		o := opView{goal: g, requestID: "r"}
		o.State = state
		if state == op.StateUndone {
			o.Failure = &op.Failure{Code: string(api.CodeStateForbidden), Message: "the guest was stopped"}
		}
		return o
	}
	for what, c := range map[string]struct {
		method string
		ops    []opView
		want   api.MigrationState
	}{
		"a mirror":             {MethodMirror, []opView{ended(goalStart, op.StateDone), ended(goalCopy, op.StateUndone)}, api.MigrationCancelling},
		"the switch of one":    {MethodMirror, []opView{ended(goalStart, op.StateDone), ended(goalCopy, op.StateDone), ended(goalComplete, op.StateUndone)}, api.MigrationCancelling},
		"a copy":               {MethodOverlay, []opView{ended(goalStart, op.StateDone), ended(goalCopy, op.StateUndone)}, api.MigrationStarted},
		"a mirror's cancel":    {MethodMirror, []opView{ended(goalStart, op.StateDone), ended(goalCancel, op.StateDone)}, api.MigrationCancelled},
		"a mirror that begins": {MethodMirror, []opView{ended(goalStart, op.StateDone)}, api.MigrationStarted},
	} {
		h := &history{spec: Spec{Method: c.method}, ops: c.ops}
		if state, _ := h.shownState(); state != c.want {
			t.Errorf("%s: shown as %s, want %s", what, state, c.want)
		}
	}
}
