// SPDX-License-Identifier: Apache-2.0

package op

import (
	"errors"
	"time"
)

// The type of a step's error decides what the runner does. An error of none of the types below is
// permanent: before the commit point it undoes the op; after it the step is tried again up to
// Config.MaxTries, and then the op is parked for the operator.

type retryError struct {
	err   error
	after time.Duration
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// Retry wraps a temporary error: the step is tried again after the given time. The number of tries
// is limited (Config.MaxTries); then err is permanent.
func Retry(after time.Duration, err error) error { return &retryError{err, after} }

type waitError struct {
	err error
	on  string
}

func (e *waitError) Error() string { return e.err.Error() }
func (e *waitError) Unwrap() error { return e.err }

// WaitFor wraps the error of a step that needs something outside ("hypervisor", "registry", ...).
// The runner tries the step again at Wake(on) and every Config.WaitPoll, without limit.
func WaitFor(on string, err error) error { return &waitError{err, on} }

type unknownError struct{ err error }

func (e *unknownError) Error() string { return e.err.Error() }
func (e *unknownError) Unwrap() error { return e.err }

// UnknownOutcome wraps the error of a step that does not understand the state it finds. The op
// stops where it is, nothing is undone or destroyed, and the operator is called.
func UnknownOutcome(err error) error { return &unknownError{err} }

// Errors of the runner's own methods.
var (
	// ErrMismatch: an op with this id exists, with another kind, group or input.
	ErrMismatch    = errors.New("an op with this id exists and is not the same")
	ErrNotFound    = errors.New("no such op")
	ErrFinished    = errors.New("the op is finished")
	ErrCommitted   = errors.New("the op is past its commit point")
	ErrParked      = errors.New("the op waits for the operator")
	ErrNotParked   = errors.New("the op does not wait for the operator")
	ErrUnknownKind = errors.New("unknown kind of op")
	// ErrHistory: the records of the op cannot be followed. This version does not know a step in
	// them, or a record contradicts an earlier one.
	ErrHistory = errors.New("the history of the op cannot be followed")
	// ErrStopped: the runner is shut down; the op goes on at the next start.
	ErrStopped = errors.New("the runner is stopped")
	// ErrJournal: the journal did not accept a record, so the announced effect was not begun.
	ErrJournal = errors.New("journal unavailable")
)
