// SPDX-License-Identifier: Apache-2.0

// Package matrix is the failure matrix: what has to hold when something fails in the middle
// of a move, and which tests hold it. It owns the list (rows.txt), the page of the
// documentation that is made of it, and the report of what the tests said. It knows
// nothing of how a test makes its failure.
package matrix

import (
	"fmt"
	"slices"
	"strings"
)

// Module is the module whose tests are read of: rows name packages below it.
const Module = "github.com/volferry/volferry"

// Made is how a test makes a failure.
type Made string

// The ways to make a failure. All but the last are real.
const (
	FaultPoint Made = "point"
	Killed     Made = "kill"
	Kernel     Made = "kernel"
	Asked      Made = "asked"
	Fake       Made = "fake"
)

// ways are those that a row may name.
var ways = []Made{FaultPoint, Killed, Kernel, Asked, Fake}

// Test is a test that holds a row.
type Test struct {
	Made    Made
	Package string // from the top of the repository: test/e2e
	// Name is the function, and the names of its subtests behind slashes, as 'go test'
	// prints them.
	Name string
}

// Function is the name of the test without those of its subtests.
func (t Test) Function() string {
	function, _, _ := strings.Cut(t.Name, "/")
	return function
}

// Row is a failure in a phase, and what must hold after it.
type Row struct {
	ID    string // P1-F01
	Fails string
	Holds string
	Tests []Test
	Lacks string // what no real test tries
	Never string // why it cannot happen
}

// Phase is a part of a move, with its rows.
type Phase struct {
	ID, Title string
	Rows      []Row
}

// Cover is how well a row is held.
type Cover string

// The covers of rows, best first.
const (
	Real      Cover = "real"
	Partly    Cover = "partly real"
	Simulated Cover = "simulated only"
	Open      Cover = "open"
	Never     Cover = "cannot happen"
)

// Covers are all of them.
var Covers = []Cover{Real, Partly, Simulated, Open, Never}

// Cover says how well the row is held.
func (r *Row) Cover() Cover {
	isReal := slices.ContainsFunc(r.Tests, func(t Test) bool { return t.Made != Fake })
	switch {
	case r.Never != "":
		return Never
	case len(r.Tests) == 0:
		return Open
	case !isReal:
		return Simulated
	case r.Lacks != "":
		return Partly
	}
	return Real
}

// check refuses a row that says too little of itself.
func (r *Row) check() error {
	switch {
	case r.Fails == "":
		return fmt.Errorf("row %s does not say what fails", r.ID)
	case r.Never != "" && (r.Holds != "" || r.Lacks != "" || len(r.Tests) > 0):
		return fmt.Errorf("row %s cannot happen, and says more", r.ID)
	case r.Never != "":
		return nil
	case r.Holds == "":
		return fmt.Errorf("row %s does not say what must hold", r.ID)
	case r.Cover() != Real && r.Lacks == "":
		return fmt.Errorf("row %s is %s, and does not say what it lacks", r.ID, r.Cover())
	}
	return nil
}
