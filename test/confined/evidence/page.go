// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Page is the page of the documentation.
func (all *Results) Page() string {
	var text strings.Builder
	text.WriteString(`<!-- Made by make confined-report of the tests' results; not written by hand -->

# Guests under AppArmor and SELinux

Results of tests with real guests, libvirtd and QEMU. On the machines of ` + "`make test-confined`" + ` the kernel confines the
guests, each daemon runs under its unit, and a test fails if the kernel denies something to any program. The column *none*
is ` + "`make test-e2e`" + `, without a security module. ` + "`make confined-report`" + ` makes this page of these runs:

`)
	for _, run := range all.runs {
		fmt.Fprintf(&text, "* %s\n", run)
	}
	machines := all.columns()
	for _, m := range machines {
		if m.software != "" {
			fmt.Fprintf(&text, "* The machine *%s* had %s\n", m.name, m.software)
		}
	}
	text.WriteString("\n## Scenarios\n\n")
	text.WriteString(scenarioTable(machines))
	text.WriteString("\n## Owners and labels of images\n")
	for _, m := range machines {
		if images := m.images(); len(images) > 0 {
			fmt.Fprintf(&text, "\n### %s\n\n%s", m.name, imageTable(images))
		}
	}
	return text.String()
}

// scenarioTable has a row for each scenario and a column for each machine, and below it the reasons
// of skipped tests.
func scenarioTable(machines []*machine) string {
	var text strings.Builder
	var reasons []string
	text.WriteString("| scenario | test |")
	for _, m := range machines {
		text.WriteString(" " + m.name + " |")
	}
	text.WriteString("\n|---|---|" + strings.Repeat("---|", len(machines)) + "\n")
	for _, s := range Scenarios {
		fmt.Fprintf(&text, "| %s | `%s` |", s.Does, s.Test)
		for _, m := range machines {
			fmt.Fprintf(&text, " %s |", m.of(s.Test).cell(&reasons))
		}
		text.WriteString("\n")
	}
	for i, reason := range reasons {
		if i == 0 {
			text.WriteString("\nSkipped:\n\n")
		}
		fmt.Fprintf(&text, "%d. %s\n", i+1, reason)
	}
	return text.String()
}

// cell is a result in words. It adds the reason of a skipped test to the reasons, if it is new.
func (r *result) cell(reasons *[]string) string {
	if r == nil {
		return "not run"
	}
	switch r.action {
	case "pass":
		return "passed"
	case "fail":
		return "**failed**"
	case "skip":
		reason := cmp.Or(r.skipped, "the test gives no reason")
		if !slices.Contains(*reasons, reason) {
			*reasons = append(*reasons, reason)
		}
		return fmt.Sprintf("skipped (%d)", slices.Index(*reasons, reason)+1)
	}
	return "**did not end**"
}

// images returns the images of the machine's tests that passed.
func (m *machine) images() (images []Image) {
	for _, s := range Scenarios {
		if got := m.tests[s.Test]; got != nil && got.action == "pass" {
			images = append(images, got.images...)
		}
	}
	return images
}

func imageTable(images []Image) string {
	var text strings.Builder
	text.WriteString("| move | phase | image | QEMU has it open to | owner | mode | label | QEMU runs as |\n" + strings.Repeat("|---", 8) + "|\n")
	for _, i := range images {
		for _, field := range i.fields() {
			text.WriteString("| " + *field + " ")
		}
		text.WriteString("|\n")
	}
	return text.String()
}
