// SPDX-License-Identifier: Apache-2.0

package op

// The moments where a test may end the process. Between two adjacent moments lies one record or one
// effect, or nothing where one commit has stored two records.
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

func faultName(kind, step, moment string) string { return kind + "." + step + "." + moment }

func finishedFault(kind string) string { return kind + ".finished" }
