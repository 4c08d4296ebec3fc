// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"
	"slices"
	"strings"
)

// states are the letters of the states of a guest, in the order of a cell.
var states = []struct{ letter, guest string }{
	{"R", "running"}, {"P", "paused"}, {"S", "stopped"}, {"N", NoGuest},
}

// part is a table of the page.
type part struct{ title, end string }

var parts = []part{{"Moved", Completed}, {"Begun and cancelled", Cancelled}}

const (
	countHead = "Here moves: "
	corner    = `from \ to`
)

// Page is the page of the documentation.
func (all *Results) Page() string {
	moves := all.Passed()
	var text strings.Builder
	fmt.Fprintf(&text, `<!-- Made by make kinds-report of what tests said; not written by hand -->

# What was moved, and where to

Each letter is a move that a test has made with libvirtd, QEMU and real storage, and that passed: **R** under a guest that runs and
writes, **P** under one that is paused, **S** of a stopped instance, **N** of a volume that no instance has. Of an empty cell nobody knows more than what
[What a volume may be](../reference/storage.md) says. `+"`make kinds-report`"+` makes this page of the results of
`+"`make test-e2e`, `make test-storage`"+` and others. `+countHead+`%d, in these runs:

`, all.before.count+len(moves))
	for _, run := range all.before.runs {
		fmt.Fprintf(&text, "* %s\n", run)
	}
	for _, run := range all.runs {
		fmt.Fprintf(&text, "* %s\n", run)
	}
	moves = append(moves, all.before.moves...)
	for _, part := range parts {
		ended := slices.DeleteFunc(slices.Clone(moves), func(m Move) bool { return m.End != part.end })
		if len(ended) > 0 {
			fmt.Fprintf(&text, "\n## %s\n\n%s", part.title, table(ended))
		}
	}
	return text.String()
}

// table has a row for each kind that a volume was moved from, and a column for each that it was
// moved to.
func table(moves []Move) string {
	from := kindsOf(moves, func(m Move) string { return m.From })
	to := kindsOf(moves, func(m Move) string { return m.To })
	var text strings.Builder
	text.WriteString("| " + corner + " | " + strings.Join(to, " | ") + " |\n|---" + strings.Repeat("|---", len(to)) + "|\n")
	for _, a := range from {
		text.WriteString("| " + a + " |")
		for _, b := range to {
			cell := ""
			for _, s := range states {
				if slices.ContainsFunc(moves, func(m Move) bool { return m.From == a && m.To == b && m.Guest == s.guest }) {
					cell += " " + s.letter
				}
			}
			text.WriteString(cell + " |")
		}
		text.WriteString("\n")
	}
	return text.String()
}

// kindsOf are the kinds at one end of moves, each once, by name.
func kindsOf(moves []Move, end func(Move) string) []string {
	var names []string
	for _, m := range moves {
		names = append(names, end(m))
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	return slices.Compact(names)
}
