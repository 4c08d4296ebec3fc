// SPDX-License-Identifier: Apache-2.0

package ledger

import "time"

// Options are what a Ledger tells of itself.
type Options struct {
	// OnCommit, where not nil, is told of every commit: how many changes it
	// carried, and how long it took. It must not block.
	OnCommit func(changes int, took time.Duration)
	// OnTrail, where not nil, is told after every commit, and before its changes are
	// answered, where the audit trail ends. It must not block.
	OnTrail func(End)
	// FaultPoint, where not nil, is called where a test may want the program to end:
	// with EVENT.before_commit when an event of the audit trail is written and not yet
	// stored, and with EVENT.after_commit when it is on stable storage and nobody was
	// told. EVENT is what happened and, of a change of state, to which. It may not
	// return.
	FaultPoint func(name string)
	// Cache, where not nil, is told what becomes of what changes have read.
	Cache Cache
	// Now is the wall clock; nil is time.Now.
	Now func() time.Time
}

// Cache holds what changes have read for the changes that come after them, inside
// their transactions. All of it happens in the writer's goroutine, which calls these
// methods; none of them may block.
type Cache interface {
	// BeforeExec is told of each statement of a change before it is run.
	BeforeExec(query string)
	// Undo is called when what one change did was undone.
	Undo()
	// Reset is called when a whole transaction was undone, or may have been.
	Reset()
}
