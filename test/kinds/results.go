// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/volferry/volferry/test/matrix"
)

// Results are the moves that tests have said.
type Results struct {
	of   map[test]*said
	runs []*matrix.Run
}

// test is a function: what a subtest says counts if its function passed.
type test struct{ pkg, function string }

type said struct {
	moves          []Move
	passed, failed bool
}

// Read takes in what 'go test -json' printed in one run. What a function says counts if it passed in that run.
func (all *Results) Read(r io.Reader, module string) error {
	now := map[test]*said{}
	run, err := matrix.ReadRun(r, module, func(e matrix.Event) error {
		function, _, sub := strings.Cut(e.Test, "/")
		k := test{e.Package, function}
		if now[k] == nil {
			now[k] = &said{}
		}
		switch {
		case e.Action == "output":
			m, isMove, err := parse(e.Output)
			if isMove && err == nil {
				now[k].moves = append(now[k].moves, m)
			}
			return err
		case e.Action == "fail":
			now[k].failed = true
		case e.Action == "pass" && !sub:
			now[k].passed = true
		}
		return nil
	})
	all.runs = append(all.runs, run)
	for k, s := range now {
		all.add(k, s)
	}
	return err
}

// add adds what a function has said in one more run.
func (all *Results) add(k test, s *said) {
	if all.of == nil {
		all.of = map[test]*said{}
	}
	before := all.of[k]
	switch passed := s.passed && !s.failed; {
	case before == nil:
		all.of[k] = s
	case passed && before.passed && !before.failed:
		before.moves = append(before.moves, s.moves...)
	case passed:
		all.of[k] = s
	}
}

// Passed are the moves of the functions that passed, in the runs in which they did, and how many these are.
func (all *Results) Passed() (moves []Move, tests int) {
	for _, s := range all.of {
		if s.passed && !s.failed && len(s.moves) > 0 {
			moves = append(moves, s.moves...)
			tests++
		}
	}
	return moves, tests
}

// Failed are the functions that have said a move and have passed in no run.
func (all *Results) Failed() []string {
	var names []string
	for k, s := range maps.All(all.of) {
		if len(s.moves) > 0 && (s.failed || !s.passed) {
			names = append(names, k.function)
		}
	}
	slices.Sort(names)
	return names
}
