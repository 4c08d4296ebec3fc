// SPDX-License-Identifier: Apache-2.0

package op

import (
	"errors"
	"time"
)

// What a step returns tells the runner what to do. An error of none of the
// types below is permanent: before the commit point it undoes the op, after it
// it is tried again a bounded number of times and then given to the operator.

// retryError asks for another try after a while.
type retryError struct {
	err   error
	after time.Duration
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// Retry says that err may pass by itself: try the step again after the given
// time. The number of tries is limited (Config.MaxTries); then err is permanent.
func Retry(after time.Duration, err error) error { return &retryError{err, after} }

// waitError asks to wait for something outside.
type waitError struct {
	err error
	on  string
}

func (e *waitError) Error() string { return e.err.Error() }
func (e *waitError) Unwrap() error { return e.err }

// WaitFor says that the step cannot go on until something outside ("hypervisor",
// "registry", ...) is back. The runner waits for Wake(on), and tries again now and then in
// any case, without limit. Waiting is not failure.
func WaitFor(on string, err error) error { return &waitError{err, on} }

// unknownError stops the op.
type unknownError struct{ err error }

func (e *unknownError) Error() string { return e.err.Error() }
func (e *unknownError) Unwrap() error { return e.err }

// UnknownOutcome says that the step does not understand the state of the world: the op
// stops where it is, nothing is undone or destroyed, and the operator is called.
func UnknownOutcome(err error) error { return &unknownError{err} }

// Errors of the runner's own methods.
var (
	// ErrMismatch: an op with this id exists and differs in kind, group or input.
	ErrMismatch = errors.New("an op with this id exists and is not the same")
	// ErrNotFound: no op with this id.
	ErrNotFound = errors.New("no such op")
	// ErrFinished: the op is over; there is nothing to interrupt or to resume.
	ErrFinished = errors.New("the op is finished")
	// ErrCommitted: the op is past its commit point and goes only forward.
	ErrCommitted = errors.New("the op is past its commit point")
	// ErrParked: the op waits for the operator, who has to call Continue.
	ErrParked = errors.New("the op waits for the operator")
	// ErrNotParked: the op does not wait for the operator.
	ErrNotParked = errors.New("the op does not wait for the operator")
	// ErrUnknownKind: no plan is known for this kind of op.
	ErrUnknownKind = errors.New("unknown kind of op")
	// ErrHistory: the records of the op cannot be followed: this version does
	// not know a step in them, or one contradicts those before it.
	ErrHistory = errors.New("the history of the op cannot be followed")
	// ErrStopped: the runner is shut down; the op goes on at the next start.
	ErrStopped = errors.New("the runner is stopped")
	// ErrJournal: the journal did not take a record, so the effect that the
	// record announces was not begun.
	ErrJournal = errors.New("journal unavailable")
)
