// SPDX-License-Identifier: Apache-2.0

package matrix

import "slices"

// Verdict is what the tests of a row said.
type Verdict string

// The verdicts. A row of which a test failed when it ran last has failed; one that is missing among
// tests that ran is named wrongly. One that has real tests of which none passed is not held by its
// fakes.
const (
	Failed  Verdict = "FAILED"
	Missing Verdict = "no such subtest"
	NotRun  Verdict = "not run"
	Fakes   Verdict = "passed by fakes only"
	Some    Verdict = "some passed"
	Passed  Verdict = "passed"
	None    Verdict = "-"
)

// verdicts are all of them, best first.
var verdicts = []Verdict{Passed, Some, Fakes, NotRun, None, Failed, Missing}

// Outcome is what became of a row.
type Outcome struct {
	Verdict Verdict
	// Made are the ways in which those of its tests that ran made the failure.
	Made        []Made
	TestsPassed int
	// Trials are tests, and subtests, that have no subtests themselves.
	TrialsPassed, TrialsFailed int
}

// since adds what runs before said of a row with this many tests.
func (o *Outcome) since(before Outcome, tests int) {
	o.TrialsPassed += before.TrialsPassed
	o.TrialsFailed += before.TrialsFailed
	o.Made = append(o.Made, before.Made...)
	if o.Verdict == Failed || o.TestsPassed == tests {
		return
	}
	o.TestsPassed = max(o.TestsPassed, min(before.TestsPassed, tests))
	switch {
	case before.Verdict == Failed:
		o.Verdict = Failed
	case before.Verdict == Passed && o.TestsPassed < tests: // a test has come since
		o.Verdict = Some
	case slices.Index(verdicts, before.Verdict) < slices.Index(verdicts, o.Verdict):
		o.Verdict = before.Verdict
	}
}
