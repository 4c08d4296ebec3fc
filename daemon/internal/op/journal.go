// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Op is one durable operation as requested. It is immutable; its records have its progress.
type Op struct {
	ID   string
	Kind string
	// Group is common to the ops of one larger operation, for example the id of a migration.
	Group string
	// Keys exclude other ops with one of these keys until this op is final, e.g. "instance/UUID".
	// An op waits until it has all of its keys.
	Keys  []string
	Input json.RawMessage
	// Steps are the steps of the op in order, and Commit names its commit point (Plan.Commit).
	// Every later program does these stored steps, or none. If Steps is empty, Submit fills both
	// from the plan.
	Steps     []StepRef
	Commit    string
	CreatedAt time.Time
}

// Has reports whether the op has a step with this name.
func (o *Op) Has(step string) bool {
	return slices.ContainsFunc(o.Steps, func(s StepRef) bool { return s.Name == step })
}

// StepRef is a step of an op as the journal stores it.
type StepRef struct {
	Name    string `json:"name"`
	Version int    `json:"version,omitempty"`
}

func (s StepRef) String() string {
	if s.Version == 0 {
		return s.Name
	}
	return fmt.Sprintf("%s (version %d)", s.Name, s.Version)
}

// Failure is an error as the journal keeps it and the user sees it.
type Failure struct {
	Code    string         `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

// Record is one entry of an op's history.
type Record struct {
	OpID string
	// Seq counts the records of one op from 1, without gaps.
	Seq  int64
	At   time.Time
	Step string // empty for records of the op as a whole
	Kind EventKind
	// Data is the step's output (succeeded), its note (noted) or a Failure (failed, undo_failed,
	// needs_operator, and finished if the op was undone).
	Data json.RawMessage
}

// Journal stores ops and their records. Create and Append return only after the data is on stable
// storage. After an error the data may be stored or not, and the caller must not act.
// Implementations are safe for concurrent use.
type Journal interface {
	// Create stores a new op and returns it. If the id is already stored it returns the stored op,
	// or ErrMismatch if that has another kind, group or input.
	Create(ctx context.Context, o Op) (Op, error)
	// Append stores the next records of one op, all of them or none. It refuses records with a Seq
	// that does not follow.
	Append(ctx context.Context, records ...Record) error
	// Unfinished returns the ops without a finished record, in the order of their Create calls.
	Unfinished(ctx context.Context) ([]Op, error)
	Op(ctx context.Context, id string) (Op, error)
	// Group returns the ops of a group, oldest first. No op belongs to the group "".
	Group(ctx context.Context, group string) ([]Op, error)
	Records(ctx context.Context, opID string) ([]Record, error)
}
