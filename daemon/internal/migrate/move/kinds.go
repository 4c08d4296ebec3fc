// SPDX-License-Identifier: Apache-2.0

package move

// These are the op kinds of a migration. The steps of an op depend on its kind, the method and the
// guest (plans.Way).
const (
	KindStart    = "migration_start"
	KindCopy     = "migration_copy"
	KindComplete = "migration_complete"
	KindCancel   = "migration_cancel"
	// KindRollback cancels a migration that the registry ended while this host was fenced.
	KindRollback = "migration_rollback"
)

// The op kinds of this host's part in a move that the registry leads. KindCopySaved copies src
// while all its guests are paused. KindMakeLive makes dst for a move while all guests write.
// KindDropDst removes such a dst if the move is cancelled.
const (
	KindCopySaved = "migration_copy_saved"
	KindMakeLive  = "migration_make_live"
	KindDropDst   = "migration_drop_dst"
	KindDropSrc   = "migration_drop_src"
)

// Goal is the purpose of an op kind.
type Goal string

// The calls on a migration.
const (
	GoalStart    Goal = "start"
	GoalCopy     Goal = "copy"
	GoalComplete Goal = "complete"
	GoalCancel   Goal = "cancel"
)

var goals = map[string]Goal{
	KindStart: GoalStart, KindCopy: GoalCopy, KindComplete: GoalComplete, KindCancel: GoalCancel, KindRollback: GoalCancel,
	KindCopySaved: GoalCopy, KindMakeLive: GoalCopy, KindDropDst: GoalCancel, KindDropSrc: GoalComplete,
}

// KindFor returns the op kind of a goal. plans.Env.Plan uses KindRollback instead of KindCancel
// for a migration that the registry has ended.
func KindFor(g Goal) string { return "migration_" + string(g) }

// GoalOf returns the goal of an op kind, or "" for a kind without goal.
func GoalOf(kind string) Goal { return goals[kind] }
