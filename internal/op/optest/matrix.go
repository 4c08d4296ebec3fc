// SPDX-License-Identifier: Apache-2.0

package optest

import "testing"

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
// cut, crash and append come twice: for an op that is done, and (_undoing) for one that is undone
// from its last step that can be. With -short every fourth of them is run, which is not always the
// same of each step.
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
