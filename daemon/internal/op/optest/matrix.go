// SPDX-License-Identifier: Apache-2.0

package optest

import "testing"

// Matrix runs the op through every kind of failure. Each trial is a sub-test with a new world and
// fake time:
//
//	ends                 nothing goes wrong
//	twice/STEP           a crash after Do; Do runs again although it had happened
//	fails_before/STEP    Do fails without an effect
//	fails_after/STEP     Do fails after its effect
//	undo_twice/STEP      a crash after Undo, which runs again
//	undo_fails/STEP      Undo fails until the operator calls Continue
//	cut/RECORD           a crash as soon as that record is stored
//	crash/POINT          a crash at that fault point
//	append_lost/RECORD   the journal refuses that record once
//	append_stored/RECORD the same, but the record is stored
//
// cut, crash and append come twice: for an op that is done, and (_undoing) for an op that is undone
// from its last possible step. The runner after a crash has the plans of a later program, with more
// steps in another order: the op goes on with its stored steps. With -short only every fourth trial
// runs, another one for each step.
func Matrix(t *testing.T, s Subject) {
	for i, tr := range s.trials(t) {
		if testing.Short() && i%4 != 0 {
			continue
		}
		t.Run(tr.name, func(t *testing.T) {
			if err := s.try(t, tr); err != nil {
				t.Error(err)
			}
		})
	}
}

// Problem is a failed trial of an op kind.
type Problem struct {
	Trial string
	Err   error
}

// Problems runs the trials of Matrix and returns the failed ones, without failing t.
func Problems(t *testing.T, s Subject) []Problem {
	var all []Problem
	for _, tr := range s.trials(t) {
		if err := s.try(t, tr); err != nil {
			all = append(all, Problem{tr.name, err})
		}
	}
	return all
}

func (s Subject) try(t *testing.T, tr trial) error {
	_, err := s.run(t, tr)
	return err
}
