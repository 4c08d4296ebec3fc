// SPDX-License-Identifier: Apache-2.0

package move

import "slices"

// The op kinds of a migration. Live and cold are two ways to the same end. The manager chooses by
// the state of the guest, and chooses again if that changes.
const (
	KindStart           = "migration_start"
	KindStartOffline    = "migration_start_offline"
	KindStartMirror     = "migration_start_mirror"
	KindCopy            = "migration_copy"
	KindMirror          = "migration_mirror"
	KindCompleteLive    = "migration_complete_live"
	KindCompleteCold    = "migration_complete_cold"
	KindCompleteOffline = "migration_complete_offline"
	KindCompleteMirror  = "migration_complete_mirror"
	KindCancelLive      = "migration_cancel_live"
	KindCancelCold      = "migration_cancel_cold"
	KindCancelOffline   = "migration_cancel_offline"
	KindCancelMirror    = "migration_cancel_mirror"
	KindCancelCommitted = "migration_cancel_committed"
	// The held kinds begin their block job with the guest suspended. The other kinds do not have
	// those steps, since the journal of an older version may contain open ops of them.
	KindBeginMirror      = "migration_begin_mirror"
	KindCompleteLiveHeld = "migration_complete_live_held"
	KindCancelLiveHeld   = "migration_cancel_live_held"
	KindRollbackLiveHeld = "migration_take_back_live_held"
	// The background kinds complete a move with a copy job that writes only in the background
	// (Spec.Background): the pivot comes before the definition names dst.
	KindCompleteBackground     = "migration_complete_live_background"
	KindCompleteBackgroundHeld = "migration_complete_live_background_held"
	// Ops of these kinds cancel a migration that the registry has ended after this host was fenced.
	// If src still belongs to the instance and is under an overlay, a rollback kind folds the
	// overlay back into src; otherwise KindRelease ends the remaining job. The names in journals
	// are older than the names here.
	KindRelease      = "migration_let_go"
	KindRollbackLive = "migration_take_back_live"
	KindRollbackCold = "migration_take_back_cold"
)

// The op kinds of this host's part in a move with all guests paused.
const (
	KindCopySaved = "migration_copy_saved"
	KindDropDst   = "migration_drop_dst"
	KindDropSrc   = "migration_drop_src"
)

// KindMakeLive makes dst for a move while all guests write. Like this host's copy, it leaves a dst
// that is dropped if the move is cancelled.
const KindMakeLive = "migration_make_live"

// Goal is the purpose of an op kind.
type Goal string

// The goals, which are the calls on a migration.
const (
	GoalStart    Goal = "start"
	GoalCopy     Goal = "copy"
	GoalComplete Goal = "complete"
	GoalCancel   Goal = "cancel"
)

var goals = map[string]Goal{
	KindStart: GoalStart, KindStartOffline: GoalStart, KindStartMirror: GoalStart,
	KindCopy: GoalCopy, KindMirror: GoalCopy,
	KindCompleteLive: GoalComplete, KindCompleteCold: GoalComplete, KindCompleteOffline: GoalComplete, KindCompleteMirror: GoalComplete,
	KindCancelLive: GoalCancel, KindCancelCold: GoalCancel, KindCancelOffline: GoalCancel, KindCancelMirror: GoalCancel, KindCancelCommitted: GoalCancel, KindRelease: GoalCancel,
	KindRollbackLive: GoalCancel, KindRollbackCold: GoalCancel,
	KindBeginMirror: GoalCopy, KindCompleteLiveHeld: GoalComplete, KindCancelLiveHeld: GoalCancel, KindRollbackLiveHeld: GoalCancel,
	KindCompleteBackground: GoalComplete, KindCompleteBackgroundHeld: GoalComplete,
	KindCopySaved: GoalCopy, KindMakeLive: GoalCopy, KindDropDst: GoalCancel, KindDropSrc: GoalComplete,
}

// KindsFor returns the op kinds that reach a goal.
func KindsFor(g Goal) []string {
	var kinds []string
	for kind, goal := range goals {
		if goal == g {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// GoalOf returns the goal of an op kind, "" for a kind that is no migration's.
func GoalOf(kind string) Goal { return goals[kind] }
