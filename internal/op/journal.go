// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"encoding/json"
	"time"
)

// Op is one durable operation as it was asked for. It never changes after it was created;
// its records say what becomes of it.
type Op struct {
	ID   string
	Kind string
	// Group ties together the ops of one larger operation, for example by the id of a
	// migration.
	Group string
	// Keys are what the op keeps other ops away from while it is not final, e.g.
	// "instance/UUID". An op waits until it has all of its keys.
	Keys      []string
	Input     json.RawMessage
	CreatedAt time.Time
}

// Failure is an error as it is kept in the journal and shown to the user.
type Failure struct {
	Code    string         `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

// Record is one line of an op's history.
type Record struct {
	OpID string
	// Seq counts the records of one op from 1, without gaps.
	Seq  int64
	At   time.Time
	Step string // empty for records of the op as a whole
	Kind EventKind
	// Data is the step's output (succeeded), its note (noted) or the Failure
	// (failed, undo_failed, needs_operator; finished of an undone op).
	Data json.RawMessage
}

// Journal is where ops and their records survive. Create and Append return
// only after the data is on stable storage; an error means that nothing may be
// assumed and the caller must not act. Implementations are safe for concurrent
// use.
type Journal interface {
	// Create stores a new op. It returns ErrMismatch if another op (with another kind,
	// group or input) has the id, and nil if this op has been stored before.
	Create(ctx context.Context, o Op) error
	// Append stores the next records of one op, all of them or none. It refuses records with
	// another Seq.
	Append(ctx context.Context, records ...Record) error
	// Unfinished returns the ops without a finished record, oldest first: in the order in
	// which Create stored them, whatever their CreatedAt says.
	Unfinished(ctx context.Context) ([]Op, error)
	// Op returns one op. ErrNotFound if there is none.
	Op(ctx context.Context, id string) (Op, error)
	// Group returns the ops of a group, oldest first. No op belongs to the group "".
	Group(ctx context.Context, group string) ([]Op, error)
	// Records returns the records of an op in order.
	Records(ctx context.Context, opID string) ([]Record, error)
}
