// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"strings"
)

// Page is the page of the documentation: counts, and a table for each phase.
func Page(phases []Phase) string {
	var text strings.Builder
	text.WriteString(`<!-- Made of test/matrix/rows.txt: go test ./internal/treetest -run FailureMatrix -update -->

# The failure matrix

What has to hold when something fails in the middle of a move, and how that is tried. What Volferry promises by it is
in [What a failure may cost](../explanation/what-a-failure-may-cost.md); what it does in each case is in the
[design of migrations](../../daemon/internal/migrate/DESIGN.md).

A row is

* **real** if a test with real programs holds all of it: libvirtd, QEMU and a guest that writes, or the built registry
  where only that is concerned. *point*: the program ends itself with SIGKILL at its own fault points. *kill*: a real process
  is killed. *kernel*: the kernel refuses. *asked*: somebody really does it, with volferryctl or virsh.
* **partly real** if real programs try some of it. What is left is said.
* **simulated only** if nothing but a host in memory tries it (*fake*), though something real could. What that would be is said.
* **open** if no test tries it.

[What its tests said in the last runs](https://github.com/volferry/volferry/blob/main/docs/evidence/failure-matrix-runs.md), row by row, is written by ` + "`make matrix-report`" + `.

`)
	text.WriteString(counts(phases))
	for _, p := range phases {
		fmt.Fprintf(&text, "\n## %s: %s\n\n| | fails | must hold | | by |\n|---|---|---|---|---|\n", p.ID, p.Title)
		for _, r := range p.Rows {
			fmt.Fprintf(&text, "| %s | %s | %s | %s | %s |\n", r.ID, r.Fails, r.Holds, r.Cover(), r.by())
		}
	}
	return text.String()
}

// counts is a table of how many rows of each phase are held how well.
func counts(phases []Phase) string {
	var text strings.Builder
	line := func(title string, of map[Cover]int, emphasis string) {
		all := 0
		for _, n := range of {
			all += n
		}
		fmt.Fprintf(&text, "| %s%s%s | %s%d%s |", emphasis, title, emphasis, emphasis, all, emphasis)
		for _, c := range Covers {
			fmt.Fprintf(&text, " %s%d%s |", emphasis, of[c], emphasis)
		}
		text.WriteString("\n")
	}
	text.WriteString("| phase | rows |")
	for _, c := range Covers {
		fmt.Fprintf(&text, " %s |", c)
	}
	text.WriteString("\n|---|---|" + strings.Repeat("---|", len(Covers)) + "\n")
	sum := map[Cover]int{}
	for _, p := range phases {
		of := map[Cover]int{}
		for _, r := range p.Rows {
			of[r.Cover()]++
			sum[r.Cover()]++
		}
		line(p.ID+" "+p.Title, of, "")
	}
	line("all", sum, "**")
	return text.String()
}

// by says which tests hold the row, and what they leave out.
func (r *Row) by() string {
	if r.Never != "" {
		return r.Never
	}
	var parts []string
	for _, t := range r.Tests {
		parts = append(parts, fmt.Sprintf("%s: `%s` %s", t.Made, t.Name, t.Package))
	}
	if r.Lacks != "" {
		parts = append(parts, "*Not yet: "+r.Lacks+".*")
	}
	return strings.Join(parts, "<br>")
}
