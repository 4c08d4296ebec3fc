// SPDX-License-Identifier: Apache-2.0

package op

// The moments at which a test may end the process. Between two neighbours lies
// either one record or one effect.
const (
	momentBeforeStarted     = "before_started"
	momentAfterStarted      = "after_started"
	momentAfterDo           = "after_do"
	momentAfterSucceeded    = "after_succeeded"
	momentBeforeUndoStarted = "before_undo_started"
	momentAfterUndoStarted  = "after_undo_started"
	momentAfterUndo         = "after_undo"
	momentAfterUndone       = "after_undone"
)

// FaultPoints lists the names that Config.FaultPoint is called with for ops of this plan:
// KIND.STEP.MOMENT and KIND.finished. Steps after the commit point have no moments of
// undoing.
func FaultPoints(plan Plan) []string {
	var names []string
	reversible := true
	for _, s := range plan.Steps {
		moments := []string{momentBeforeStarted, momentAfterStarted, momentAfterDo, momentAfterSucceeded}
		if reversible {
			moments = append(moments, momentBeforeUndoStarted, momentAfterUndoStarted, momentAfterUndo, momentAfterUndone)
		}
		for _, m := range moments {
			names = append(names, faultName(plan.Kind, s.Name, m))
		}
		reversible = reversible && s.Name != plan.Commit
	}
	return append(names, finishedFault(plan.Kind))
}

func faultName(kind, step, moment string) string { return kind + "." + step + "." + moment }

func finishedFault(kind string) string { return kind + ".finished" }
