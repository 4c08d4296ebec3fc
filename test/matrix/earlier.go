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

// earlier is what a page of runs says, for runs whose files are gone: the runs, and what became of
// each row by its ID.
type earlier struct {
	runs []string
	of   map[string]Outcome
}

// readPage reads a page that RunsPage has made. It knows how many tests of a row have passed, but
// not which: of a row some of whose tests ran then and others since, those of the two count that
// are more.
func readPage(r io.Reader) (earlier, error) {
	got := earlier{of: map[string]Outcome{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if run, ok := strings.CutPrefix(lines.Text(), "* "); ok {
			got.runs = append(got.runs, run)
			continue
		}
		id, o, ok, err := readOutcome(lines.Text())
		if err != nil {
			return got, err
		}
		if ok {
			got.of[id] = o
		}
	}
	return got, lines.Err()
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
	numbers[0] = passed
	for i, to := range []*int{&o.TestsPassed, &o.TrialsPassed, &o.TrialsFailed} {
		if *to, err = strconv.Atoi(strings.TrimSpace(numbers[i])); err != nil {
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
