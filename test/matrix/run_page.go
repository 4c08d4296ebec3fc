// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"slices"
	"strings"
)

// RunsPage is the page of the documentation that says what the tests of each row said in some runs.
func (all *Results) RunsPage(phases []Phase) string {
	var text strings.Builder
	text.WriteString(`<!-- Made by make matrix-report of what tests said; not written by hand -->

# The failure matrix, run

What the tests of each row of [the failure matrix](../reference/failure-matrix.md) said in these runs:

`)
	for _, run := range all.earlier.runs {
		fmt.Fprintf(&text, "* %s\n", run)
	}
	for _, run := range all.runs {
		fmt.Fprintf(&text, "* %s\n", run)
	}
	text.WriteString(`
*Made* is how those tests of the row that ran made the failure: the words are those of the matrix. *Tests* is how many of the tests that the row names
have passed, of how many; where some ran on one machine and others on another, at least so many. A trial is a test, or one of its subtests that has none itself: a blow at one point, most often; a test may be of several rows. The result is that
of the last run of each test; the trials are those of all runs, with what failed before it was mended. A row whose tests are in none of these runs says *not run*, and one of which only the tests on a
host in memory are in them *passed by fakes only*.

`)
	said := map[Verdict]int{}
	for _, p := range phases {
		for _, r := range p.Rows {
			said[all.Of(&r).Verdict]++
		}
	}
	text.WriteString("| result | rows |\n|---|---|\n")
	for _, v := range verdicts {
		fmt.Fprintf(&text, "| %s | %d |\n", v, said[v])
	}
	for _, p := range phases {
		fmt.Fprintf(&text, "\n## %s: %s\n\n| | fails | made | result | tests | trials passed | failed |\n|---|---|---|---|---|---|---|\n", p.ID, p.Title)
		for _, r := range p.Rows {
			o := all.Of(&r)
			fmt.Fprintf(&text, "| %s | %s | %s | %s | %d of %d | %d | %d |\n", r.ID, r.Fails, o.made(), o.result(&r), o.TestsPassed, len(r.Tests), o.TrialsPassed, o.TrialsFailed)
		}
	}
	return text.String()
}

// made says in which ways the failure was made.
func (o *Outcome) made() string {
	var words []string
	for _, way := range ways {
		if slices.Contains(o.Made, way) {
			words = append(words, string(way))
		}
	}
	return strings.Join(words, ", ")
}

// result is the verdict, or why there is none.
func (o *Outcome) result(r *Row) string {
	if r.Never != "" {
		return string(Never)
	}
	return string(o.Verdict)
}
