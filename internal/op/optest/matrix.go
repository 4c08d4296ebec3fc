// SPDX-License-Identifier: Apache-2.0

package optest

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/internal/op"
)

// World is a fake of everything that an op acts on. It survives the runner as
// disks and hypervisors survive the daemon: the matrix crashes a runner and
// begins another one on the same World. It must not use sockets, since trials
// run in a bubble of testing/synctest.
type World interface {
	// Plans makes the plans as a daemon that starts would: called once per
	// runner, and nothing that is kept in them may be needed by the next one.
	Plans() []op.Plan
	// Op is the op under test, the same in every call.
	Op() op.Op
	// Check says what is wrong with the world now that the op ended done or
	// undone: an effect that is missing, or there twice, or left behind.
	Check(state op.State) error
}

// Subject is an op kind under test.
//
//	func TestMatrix(t *testing.T) {
//		optest.Matrix(t, optest.Subject{New: func(t *testing.T) optest.World {
//			return newFakeHost(t)
//		}})
//	}
type Subject struct {
	// New makes a world in which nothing has happened yet.
	New func(t *testing.T) World
}

// Matrix runs the op through everything that can happen to an op, each trial in
// a new world, as a sub-test, with fake time:
//
//	ends                 nothing goes wrong
//	twice/STEP           a crash after Do; Do runs again although it had happened
//	fails_before/STEP    Do fails without an effect
//	fails_after/STEP     Do fails after its effect
//	undo_twice/STEP      a crash after Undo, which runs again
//	undo_fails/STEP      Undo fails until the operator says go on
//	cut/RECORD           a crash as soon as that record is stored
//	crash/POINT          a crash at that fault point
//	append_lost/RECORD   the journal refuses that record once
//	append_stored/RECORD the same, but the record is stored
//
// cut, crash and append come twice: for an op that is done, and (_undoing) for
// one that is undone from its last step that can be.
func Matrix(t *testing.T, s Subject) {
	for _, tr := range s.trials(t) {
		t.Run(tr.name, func(t *testing.T) {
			if err := s.try(t, tr); err != nil {
				t.Error(err)
			}
		})
	}
}

// Problem is a trial that an op kind did not pass.
type Problem struct {
	Trial string
	Err   error
}

// Problems runs the trials of Matrix and returns what is wrong, without failing
// t.
func Problems(t *testing.T, s Subject) []Problem {
	var all []Problem
	for _, tr := range s.trials(t) {
		if err := s.try(t, tr); err != nil {
			all = append(all, Problem{tr.name, err})
		}
	}
	return all
}

// try runs one trial in a world and a time of its own.
func (s Subject) try(t *testing.T, tr trial) error {
	_, err := s.run(t, tr)
	return err
}

// run runs one trial and returns what came to pass.
func (s Subject) run(t *testing.T, tr trial) (o outcome, err error) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(s.New(t), tr)
		defer r.close()
		if o, err = r.play(t.Context()); err == nil {
			err = r.checkOutcome(o)
		}
		if err != nil {
			err = fmt.Errorf("%w\nhistory: %s", err, r.history(t.Context()))
		}
	})
	return o, err
}
