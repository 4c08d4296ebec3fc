// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/humanize"
)

// Targets are the targets of the Makefile that run tests, in its order.
type Targets []target

// target is a call of 'go test' in a recipe. Without a pattern it runs all tests of its packages.
type target struct {
	name     string
	run      *regexp.Regexp
	packages []string
}

// unit is the target of what no recipe names.
const unit = "test-unit"

var (
	recipeOf = regexp.MustCompile(`^([a-z0-9-]+):`)
	goTest   = regexp.MustCompile(`\$\(GO\) test (.*)`)
	runOnly  = regexp.MustCompile(`(?:[\t ]-run |\tVOLFERRY_STORAGE_RUN=)'([^']*)'`)
)

// ReadTargets reads a Makefile. Its variables stay as they are: who names packages or a pattern by
// one names none for a row.
func ReadTargets(makefile string) (Targets, error) {
	var all Targets
	name := ""
	for line := range strings.Lines(makefile) {
		if head := recipeOf.FindStringSubmatch(line); head != nil {
			name = head[1]
		}
		call := goTest.FindStringSubmatch(line)
		if call == nil || !strings.HasPrefix(line, "\t") {
			continue
		}
		made := target{name: name}
		if pattern := runOnly.FindStringSubmatch(line); pattern != nil {
			var err error
			if made.run, err = regexp.Compile(strings.ReplaceAll(pattern[1], "$$", "$")); err != nil {
				return nil, fmt.Errorf("read the tests of target %s: %w", name, err)
			}
		}
		for _, word := range strings.Fields(call[1]) {
			if folder, isFolder := strings.CutPrefix(strings.TrimRight(word, ";"), "./"); isFolder {
				made.packages = append(made.packages, strings.TrimSuffix(folder, "/..."))
			}
		}
		all = append(all, made)
	}
	return all, nil
}

func (r *target) runs(t Test) bool {
	folder := t.Package
	if strings.HasPrefix(t.Name, forMachine) {
		folder = machine
	}
	here := func(p string) bool { return folder == p || strings.HasPrefix(folder, p+"/") }
	return slices.ContainsFunc(r.packages, here) && (r.run == nil || r.run.MatchString(t.Function()))
}

// Runs reports whether a target runs a test.
func (all Targets) Runs(name string, t Test) bool {
	return slices.ContainsFunc(all, func(r target) bool { return r.name == name && r.runs(t) })
}

// of is the target that runs a test: one that chooses it by its name before one that runs all of
// its package, which may leave the test to that.
func (all Targets) of(t Test) string {
	found := ""
	for _, r := range all {
		switch {
		case !r.runs(t):
		case r.run != nil:
			return r.name
		default:
			found = cmp.Or(found, r.name)
		}
	}
	return cmp.Or(found, unit)
}

// LeftBy prints the rows of which a target runs no real test, by the targets that run their tests.
func (all Targets) LeftBy(w io.Writer, name string, phases []Phase) {
	left := map[string][]string{}
	rows, ran := 0, 0
	for _, p := range phases {
		for _, r := range p.Rows {
			if len(r.Tests) == 0 {
				continue
			}
			rows++
			tests := slices.DeleteFunc(slices.Clone(r.Tests), func(t Test) bool { return t.Made == Fake })
			if len(tests) == 0 {
				tests = r.Tests
			}
			if slices.ContainsFunc(tests, func(t Test) bool { return all.Runs(name, t) }) {
				ran++
				continue
			}
			var by []string
			for _, t := range tests {
				by = append(by, "make "+all.of(t))
			}
			slices.Sort(by)
			key := strings.Join(slices.Compact(by), ", ")
			left[key] = append(left[key], r.ID)
		}
	}
	fmt.Fprintf(w, "make %s has real tests of %d of the %s of the failure matrix that have tests, and of the others none:\n", name, ran, humanize.Count(rows, "row"))
	for _, by := range slices.Sorted(maps.Keys(left)) {
		fmt.Fprintf(w, "  %s: %s\n", by, strings.Join(left[by], " "))
	}
}
