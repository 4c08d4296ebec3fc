// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// earlier is what a page of runs says, for runs whose files are gone: the runs, and what became of each row by its ID.
type earlier struct {
	runs []string
	of   map[string]Outcome
}

// ReadPage takes in a page that RunsPage has made. It knows how many tests of a row have passed, but not which: of a row some of
// whose tests ran then and others since, it counts those of the two that are more.
func (all *Results) ReadPage(r io.Reader) error {
	all.earlier.of = map[string]Outcome{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if run, ok := strings.CutPrefix(lines.Text(), "* "); ok {
			all.earlier.runs = append(all.earlier.runs, run)
			continue
		}
		id, o, ok, err := readOutcome(lines.Text())
		if err != nil {
			return err
		}
		if ok {
			all.earlier.of[id] = o
		}
	}
	return lines.Err()
}

// readOutcome reads the line of a row as RunsPage writes it.
func readOutcome(line string) (id string, o Outcome, ok bool, err error) {
	cells := strings.Split(strings.Trim(line, "| "), " | ")
	const all = 7
	if len(cells) < all {
		return "", o, false, nil
	}
	numbers := cells[len(cells)-3:]
	passed, _, ok := strings.Cut(numbers[0], " of ")
	if !ok {
		return "", o, false, nil
	}
	for i, to := range []*int{&o.TestsPassed, &o.TrialsPassed, &o.TrialsFailed} {
		text := numbers[i]
		if i == 0 {
			text = passed
		}
		if *to, err = strconv.Atoi(strings.TrimSpace(text)); err != nil {
			return "", o, false, fmt.Errorf("%q is no line of a page of runs: %w", line, err)
		}
	}
	o.Verdict = Verdict(cells[len(cells)-4])
	for _, word := range strings.Split(cells[len(cells)-5], ", ") {
		if slices.Contains(ways, Made(word)) {
			o.Made = append(o.Made, Made(word))
		}
	}
	return cells[0], o, true, nil
}

// since adds what runs before said of a row with this many tests.
func (o *Outcome) since(before Outcome, tests int) {
	o.TrialsPassed += before.TrialsPassed
	o.TrialsFailed += before.TrialsFailed
	o.Made = append(o.Made, before.Made...)
	if o.Verdict == Failed || o.Verdict == Missing || o.TestsPassed == tests {
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
