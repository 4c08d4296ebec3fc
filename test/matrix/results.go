// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Results are what tests said.
type Results struct {
	of map[key]*result
	// parents are the tests that have subtests.
	parents map[key]bool
	runs    []*Run
	earlier earlier
}

type key struct{ pkg, name string }

// result is how often a test, or subtest, ended so, and how and when it ended last.
type result struct {
	passed, failed int
	last           string
	at             time.Time
}

// ended notes an end that may be the last.
func (got *result) ended(action string, at time.Time) {
	if !at.Before(got.at) {
		got.last, got.at = action, at
	}
}

// NewResults is of no test.
func NewResults() *Results {
	return &Results{of: map[key]*result{}, parents: map[key]bool{}}
}

// Read takes in what 'go test -json' printed in one run.
func (all *Results) Read(r io.Reader, module string) error {
	run, err := ReadRun(r, module, func(e Event) error {
		k := key{strings.TrimPrefix(e.Package, module+"/"), e.Test}
		if k.pkg == machine && strings.HasPrefix(k.name, forMachine) {
			k.pkg = inMachine
		}
		all.count(k, e.Action, e.Time)
		return nil
	})
	all.runs = append(all.runs, run)
	return err
}

// ReadPage takes in a page that RunsPage has made.
func (all *Results) ReadPage(r io.Reader) (err error) {
	all.earlier, err = readPage(r)
	return err
}

func (all *Results) count(k key, action string, at time.Time) {
	got := all.of[k]
	if got == nil {
		got = &result{}
		all.of[k] = got
	}
	switch action {
	case "pass":
		got.passed++
		got.ended(action, at)
	case "fail":
		got.failed++
		got.ended(action, at)
	}
	if i := strings.LastIndex(k.name, "/"); i >= 0 {
		all.parents[key{k.pkg, k.name[:i]}] = true
	}
}

// The test of machine has a virtual machine run those tests of inMachine whose names begin with
// forMachine. 'go test -json' hears them on the console, and takes them for tests of machine.
const machine, inMachine, forMachine = "test/storage", "test/e2e", "TestStorage"

// Of is what the tests of a row said.
func (all *Results) Of(r *Row) (o Outcome) {
	failed, missing, realPassed := false, false, false
	for _, t := range r.Tests {
		function := all.of[key{t.Package, t.Function()}]
		switch got := all.of[key{t.Package, t.Name}]; {
		case got == nil && strings.HasPrefix(t.Name, forMachine): // VOLFERRY_STORAGE_RUN chooses parts of them
		case got == nil && function != nil && function.passed > 0:
			missing = true
		case got == nil:
		case got.last == "fail":
			failed = true
		case got.passed > 0:
			o.TestsPassed++
			realPassed = realPassed || t.Made != Fake
		}
		passed, failed := all.trials(t)
		o.TrialsPassed += passed
		o.TrialsFailed += failed
		if passed+failed > 0 {
			o.Made = append(o.Made, t.Made)
		}
	}
	switch {
	case len(r.Tests) == 0:
		o.Verdict = None
	case failed:
		o.Verdict = Failed
	case missing:
		o.Verdict = Missing
	case o.TestsPassed == 0:
		o.Verdict = NotRun
	case !realPassed && r.Cover() != Simulated:
		o.Verdict = Fakes
	case o.TestsPassed < len(r.Tests):
		o.Verdict = Some
	default:
		o.Verdict = Passed
	}
	if before, ok := all.earlier.of[r.ID]; ok {
		o.since(before, len(r.Tests))
	}
	return o
}

// trials counts the ends of a test, or of those subtests of it that have none.
func (all *Results) trials(t Test) (passed, failed int) {
	for k, got := range all.of {
		if k.pkg == t.Package && (k.name == t.Name || strings.HasPrefix(k.name, t.Name+"/")) && !all.parents[k] {
			passed += got.passed
			failed += got.failed
		}
	}
	return passed, failed
}

// Report prints a line for each row, and reports whether no test of a row failed and none
// was named wrongly.
func (all *Results) Report(w io.Writer, phases []Phase) (good bool) {
	good = true
	said := map[Verdict]int{}
	for _, p := range phases {
		fmt.Fprintf(w, "%s %s\n", p.ID, p.Title)
		for _, r := range p.Rows {
			o := all.Of(&r)
			said[o.Verdict]++
			fmt.Fprintf(w, "  %-11s %-14s %-15s %6d passed %4d failed  %s\n", r.ID, r.Cover(), o.Verdict, o.TrialsPassed, o.TrialsFailed, r.Fails)
			good = good && o.Verdict != Failed && o.Verdict != Missing
		}
	}
	for _, v := range verdicts {
		fmt.Fprintf(w, "%s: %d rows\n", v, said[v])
	}
	return good
}
