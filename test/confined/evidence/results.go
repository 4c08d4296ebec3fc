// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/volferry/volferry/test/matrix"
)

// The packages with results: the tests of the scenarios, and the test that runs them in a machine.
// `go test -json` takes the tests in the machine for tests of the latter.
const scenarioPackage, machinePackage = "test/e2e", "test/confined"

// Results are the results of tests, by machine.
type Results struct {
	runs     []*matrix.Run
	machines map[string]*machine
}

// machine is a column of the page.
type machine struct {
	name, software string
	runner         string // the test that runs the others in the machine
	tests          map[string]*result
}

// result is the last result of a test.
type result struct {
	action  string // its end; empty if the test did not end
	at      time.Time
	skipped string // the reason
	images  []Image
}

// Read adds the output of one run of `go test -json`. The last result of each test counts.
func (all *Results) Read(r io.Reader) error {
	file := reading{all: all, now: map[*machine]map[string]*result{}}
	run, err := matrix.ReadRun(r, matrix.Module, file.take)
	all.runs = append(all.runs, run)
	for m, tests := range file.now {
		for name, got := range tests {
			if before := m.tests[name]; before == nil || !got.at.Before(before.at) {
				m.tests[name] = got
			}
		}
	}
	return err
}

// machine returns the machine of a name.
func (all *Results) machine(name string) *machine {
	if all.machines == nil {
		all.machines = map[string]*machine{}
	}
	if all.machines[name] == nil {
		all.machines[name] = &machine{name: name, tests: map[string]*result{}}
	}
	return all.machines[name]
}

// columns returns the machines, first the one without a security module.
func (all *Results) columns() []*machine {
	return slices.SortedFunc(maps.Values(all.machines), func(a, b *machine) int {
		switch unconfined {
		case a.name:
			return -1
		case b.name:
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
}

// reading is the state of Read: the results of a file, and the machine of the last line about one.
type reading struct {
	all     *Results
	now     map[*machine]map[string]*result
	current *machine
}

func (file *reading) take(e matrix.Event) error {
	var m *machine
	switch strings.TrimPrefix(e.Package, matrix.Module+"/") {
	case scenarioPackage:
		m = file.all.machine(unconfined)
	case machinePackage:
		if text, found := after(e.Output, machineHead); found {
			file.current = file.all.machine(text)
			file.current.runner = e.Test
		}
		m = file.current
	}
	if m == nil {
		return nil // another package, or a test before the line of its machine
	}
	if text, found := after(e.Output, softwareHead); found {
		m.software = text
	}
	function, _, sub := strings.Cut(e.Test, "/")
	got := file.result(m, function, e.Action == "run" && !sub)
	got.at = e.Time
	switch e.Action {
	case "output":
		return got.addLine(e.Output)
	case "pass", "fail", "skip":
		if !sub {
			got.action = e.Action
		}
	}
	return nil
}

// result returns the result of a test in a machine, a new one if the test begins.
func (file *reading) result(m *machine, function string, begins bool) *result {
	tests := file.now[m]
	if tests == nil {
		tests = map[string]*result{}
		file.now[m] = tests
	}
	if tests[function] == nil || begins {
		tests[function] = &result{}
	}
	return tests[function]
}

// addLine adds a line of the test's output.
func (r *result) addLine(line string) error {
	if text, found := after(line, skipHead); found {
		r.skipped = text
	}
	text, found := after(line, imageHead)
	if !found {
		return nil
	}
	image, err := parseImage(text)
	r.images = append(r.images, image)
	return err
}

// of returns the result of a test. If the test did not run because its runner was skipped, it
// returns the runner's result, otherwise nil.
func (m *machine) of(test string) *result {
	if got := m.tests[test]; got != nil {
		return got
	}
	if runner := m.tests[m.runner]; runner != nil && runner.action == "skip" {
		return runner
	}
	return nil
}

// Failed returns the tests of scenarios that failed or did not end, with their machines.
func (all *Results) Failed() []string {
	var names []string
	for _, m := range all.columns() {
		for _, s := range Scenarios {
			if got := m.of(s.Test); got != nil && got.action != "pass" && got.action != "skip" {
				names = append(names, fmt.Sprintf("%s (%s)", s.Test, m.name))
			}
		}
	}
	return names
}
