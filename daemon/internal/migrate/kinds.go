// SPDX-License-Identifier: Apache-2.0

package migrate

// The op kinds of a migration. Live and cold are two ways to the same end; the
// manager picks by whether the guest runs, and picks again if that changes.
const (
	kindStart           = "migration_start"
	kindStartOffline    = "migration_start_offline"
	kindStartMirror     = "migration_start_mirror"
	kindCopy            = "migration_copy"
	kindMirror          = "migration_mirror"
	kindCompleteLive    = "migration_complete_live"
	kindCompleteCold    = "migration_complete_cold"
	kindCompleteOffline = "migration_complete_offline"
	kindCompleteMirror  = "migration_complete_mirror"
	kindCancelLive      = "migration_cancel_live"
	kindCancelCold      = "migration_cancel_cold"
	kindCancelOffline   = "migration_cancel_offline"
	kindCancelMirror    = "migration_cancel_mirror"
	kindCancelCommitted = "migration_cancel_committed"
	// kindRelease is the cancel of a migration that the registry has ended; kindRollback
	// that of a migration whose src is still the instance's. The kinds in journals have older
	// names.
	kindRelease      = "migration_let_go"
	kindRollbackLive = "migration_take_back_live"
	kindRollbackCold = "migration_take_back_cold"
)

// The op kinds of this host's part in a move with all guests paused.
const (
	kindCopySaved = "migration_copy_saved"
	kindDropDst   = "migration_drop_dst"
	kindDropSrc   = "migration_drop_src"
)

// goal is what an op kind is for.
type goal string

const (
	goalStart    goal = "start"
	goalCopy     goal = "copy"
	goalComplete goal = "complete"
	goalCancel   goal = "cancel"
)

var goals = map[string]goal{
	kindStart: goalStart, kindStartOffline: goalStart, kindStartMirror: goalStart,
	kindCopy: goalCopy, kindMirror: goalCopy,
	kindCompleteLive: goalComplete, kindCompleteCold: goalComplete, kindCompleteOffline: goalComplete, kindCompleteMirror: goalComplete,
	kindCancelLive: goalCancel, kindCancelCold: goalCancel, kindCancelOffline: goalCancel, kindCancelMirror: goalCancel, kindCancelCommitted: goalCancel, kindRelease: goalCancel,
	kindRollbackLive: goalCancel, kindRollbackCold: goalCancel,
	kindCopySaved: goalCopy, kindDropDst: goalCancel, kindDropSrc: goalComplete,
}

// goalOf returns what an op of this kind is for; ok is false if it is no op of a migration.
func goalOf(kind string) (g goal, ok bool) {
	g, ok = goals[kind]
	return g, ok
}
