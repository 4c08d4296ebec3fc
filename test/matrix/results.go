// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Results are what tests said.
type Results struct {
	of map[key]*result
	// parents are the tests that have subtests.
	parents map[key]bool
}

type key struct{ pkg, name string }

// result is how often a test, or subtest, ended so.
type result struct{ passed, failed int }

// NewResults is of no test.
func NewResults() *Results {
	return &Results{of: map[key]*result{}, parents: map[key]bool{}}
}

// Event is a line of 'go test -json' about a test.
type Event struct{ Action, Package, Test, Output string }

// maxLine is more than any line of output of a test.
const maxLine = 16 << 20

// ReadEvents hands over what 'go test -json' printed about tests. Lines that are none of its own,
// as make prints some between them, are passed over.
func ReadEvents(r io.Reader, take func(Event) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var e Event
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Test == "" {
			continue
		}
		if err := take(e); err != nil {
			return err
		}
	}
	return lines.Err()
}

// Read takes in what 'go test -json' printed.
func (all *Results) Read(r io.Reader, module string) error {
	return ReadEvents(r, func(e Event) error {
		k := key{strings.TrimPrefix(e.Package, module+"/"), e.Test}
		if all.of[k] == nil {
			all.of[k] = &result{}
		}
		switch e.Action {
		case "pass":
			all.of[k].passed++
		case "fail":
			all.of[k].failed++
		}
		if i := strings.LastIndex(k.name, "/"); i >= 0 {
			all.parents[key{k.pkg, k.name[:i]}] = true
		}
		return nil
	})
}

// Verdict is what the tests of a row said.
type Verdict string

// The verdicts, worst first. A row of which a test failed has failed; one that is
// missing among tests that ran is named wrongly.
const (
	Failed  Verdict = "FAILED"
	Missing Verdict = "no such subtest"
	NotRun  Verdict = "not run"
	Some    Verdict = "some passed"
	Passed  Verdict = "passed"
	None    Verdict = "-"
)

// Of is what the tests of a row said, and how many trials they made: subtests that have
// no subtests themselves.
func (all *Results) Of(r *Row) (verdict Verdict, runs int) {
	if len(r.Tests) == 0 {
		return None, 0
	}
	passed, failed, missing := 0, false, false
	for _, t := range r.Tests {
		function := all.of[key{t.Package, t.Function()}]
		switch got := all.of[key{t.Package, t.Name}]; {
		case got == nil && function != nil && function.passed > 0:
			missing = true
		case got == nil:
		case got.failed > 0:
			failed = true
		case got.passed > 0:
			passed++
		}
		runs += all.trials(t)
	}
	switch {
	case failed:
		return Failed, runs
	case missing:
		return Missing, runs
	case passed == 0:
		return NotRun, runs
	case passed < len(r.Tests):
		return Some, runs
	}
	return Passed, runs
}

// trials counts the runs of a test that passed, or of those subtests of it that have none.
func (all *Results) trials(t Test) (n int) {
	for k, got := range all.of {
		if k.pkg == t.Package && (k.name == t.Name || strings.HasPrefix(k.name, t.Name+"/")) && !all.parents[k] {
			n += got.passed
		}
	}
	return n
}

// Report prints a line for each row, and says whether no test of a row failed and none
// was named wrongly.
func (all *Results) Report(w io.Writer, phases []Phase) (good bool) {
	good = true
	said := map[Verdict]int{}
	for _, p := range phases {
		fmt.Fprintf(w, "%s %s\n", p.ID, p.Title)
		for _, r := range p.Rows {
			verdict, runs := all.Of(&r)
			said[verdict]++
			fmt.Fprintf(w, "  %-11s %-14s %-15s %6d runs  %s\n", r.ID, r.Cover(), verdict, runs, r.Fails)
			good = good && verdict != Failed && verdict != Missing
		}
	}
	for _, v := range []Verdict{Passed, Some, NotRun, None, Failed, Missing} {
		fmt.Fprintf(w, "%s: %d rows\n", v, said[v])
	}
	return good
}
