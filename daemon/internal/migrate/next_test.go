// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"testing"

	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

func TestAMirrorThatFailedIsShownAsCancelledFromThenOn(t *testing.T) {
	ended := func(g move.Goal, state op.State) history.Op {
		o := history.Op{Goal: g, RequestID: "r"}
		o.State = state
		if state == op.StateUndone {
			o.Failure = &op.Failure{Code: string(api.CodeStateForbidden), Message: "the guest was stopped"}
		}
		return o
	}
	for what, c := range map[string]struct {
		method string
		ops    []history.Op
		want   api.MigrationState
	}{
		"a mirror":             {move.MethodMirror, []history.Op{ended(move.GoalStart, op.StateDone), ended(move.GoalCopy, op.StateUndone)}, api.MigrationCancelling},
		"the switch of one":    {move.MethodMirror, []history.Op{ended(move.GoalStart, op.StateDone), ended(move.GoalCopy, op.StateDone), ended(move.GoalComplete, op.StateUndone)}, api.MigrationCancelling},
		"a copy":               {move.MethodOverlay, []history.Op{ended(move.GoalStart, op.StateDone), ended(move.GoalCopy, op.StateUndone)}, api.MigrationStarted},
		"a mirror's cancel":    {move.MethodMirror, []history.Op{ended(move.GoalStart, op.StateDone), ended(move.GoalCancel, op.StateDone)}, api.MigrationCancelled},
		"a mirror that begins": {move.MethodMirror, []history.Op{ended(move.GoalStart, op.StateDone)}, api.MigrationStarted},
	} {
		h := &history.Migration{Spec: move.Spec{Method: c.method}, Ops: c.ops}
		if state, _ := h.ShownState(); state != c.want {
			t.Errorf("%s: shown as %s, want %s", what, state, c.want)
		}
	}
}
