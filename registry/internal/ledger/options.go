// SPDX-License-Identifier: Apache-2.0

package ledger

import "time"

// Options are the callbacks, the clock and the settings of a Ledger.
type Options struct {
	// OnCommit, if not nil, is called after every commit with its number of changes and its
	// duration. It must not block.
	OnCommit func(changes int, took time.Duration)
	// OnTrail, if not nil, is called with the end of the audit trail after every commit, before the
	// changes are answered. It must not block.
	OnTrail func(End)
	// GatherFor bounds how long a commit waits for as many changes as the last commit had; 0
	// disables the wait.
	GatherFor time.Duration
	// FaultPoint, if not nil, is called where a test may stop the program: with
	// EVENT.before_commit before an audit event is on stable storage, and with EVENT.after_commit
	// before it is answered. EVENT is the event's name and, for a change of state, the new state.
	// FaultPoint need not return.
	FaultPoint func(name string)
	// Cache, if not nil, is notified when cached rows may have changed.
	Cache Cache
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
}

// A Cache keeps rows that changes have read. Only the writer's goroutine calls its methods; they
// must not block.
type Cache interface {
	// BeforeExec is called before a statement that may write.
	BeforeExec(query string)
	// Undo is called after one change was undone.
	Undo()
	// Reset is called after a whole transaction may have been undone.
	Reset()
}
