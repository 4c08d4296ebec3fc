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
	of     map[test]*said
	runs   []*matrix.Run
	before earlier
}

// earlier is what a page says, for runs whose files are gone: the runs, how many moves they made,
// and each move that is in a cell once.
type earlier struct {
	runs  []string
	count int
	moves []Move
}

// test is a function: what a subtest says counts if its function passed.
type test struct{ pkg, function string }

// said is what a function has said in all its runs.
type said struct {
	passed, spoke bool
	moves         []Move // of the runs in which it passed
}

// saidNow is what it has said in one run.
type saidNow struct {
	passed, failed bool
	moves          []Move
}

// Read takes in what 'go test -json' printed in one run. What a function says counts if it passed
// in that run.
func (all *Results) Read(r io.Reader, module string) error {
	now := map[test]*saidNow{}
	run, err := matrix.ReadRun(r, module, func(e matrix.Event) error {
		function, _, sub := strings.Cut(e.Test, "/")
		k := test{e.Package, function}
		if now[k] == nil {
			now[k] = &saidNow{}
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
func (all *Results) add(k test, now *saidNow) {
	if all.of == nil {
		all.of = map[test]*said{}
	}
	s := all.of[k]
	if s == nil {
		s = &said{}
		all.of[k] = s
	}
	s.spoke = s.spoke || len(now.moves) > 0
	if now.passed && !now.failed {
		s.passed, s.moves = true, append(s.moves, now.moves...)
	}
}

// Passed are the moves of the functions that passed, in the runs in which they did.
func (all *Results) Passed() (moves []Move) {
	for _, s := range all.of {
		moves = append(moves, s.moves...)
	}
	return moves
}

// Failed are the functions that have said a move and have passed in no run.
func (all *Results) Failed() []string {
	var names []string
	for k, s := range maps.All(all.of) {
		if s.spoke && !s.passed {
			names = append(names, k.function)
		}
	}
	slices.Sort(names)
	return names
}
