// SPDX-License-Identifier: Apache-2.0

package ledger

import "time"

// Options are the callbacks, the clock and the settings of a Ledger.
type Options struct {
	// OnCommit, if not nil, is called after every commit with the number of changes in it
	// and the time that it took. It must not block.
	OnCommit func(changes int, took time.Duration)
	// OnTrail, if not nil, is called after every commit, and before its changes are
	// answered, with the end of the audit trail. It must not block.
	OnTrail func(End)
	// GatherFor bounds how long a commit waits for as many changes as shared the last one. It
	// is 0 where nothing is to wait for others.
	GatherFor time.Duration
	// FaultPoint, if not nil, is called at points where a test may want the program to end:
	// with EVENT.before_commit when an event of the audit trail is written and not yet
	// stored, and with EVENT.after_commit when it is on stable storage and nobody has been
	// answered yet. EVENT is the name of the event and, for a change of state, the new
	// state. It need not return.
	FaultPoint func(name string)
	// Cache, if not nil, learns what happens to the rows that changes have read.
	Cache Cache
	// Now is the wall clock; nil is time.Now.
	Now func() time.Time
}

// Cache keeps, for later changes, rows that changes have read inside their transactions.
// Only the writer's goroutine calls these methods; none of them may block.
type Cache interface {
	// BeforeExec is called before each statement of a change is run.
	BeforeExec(query string)
	// Undo is called when the effect of one change was undone.
	Undo()
	// Reset is called when a whole transaction was undone, or may have been.
	Reset()
}
