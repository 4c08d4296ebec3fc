// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/test/matrix"
)

const matrixPage = "docs/reference/failure-matrix.md"

func failureMatrix(t *testing.T) []matrix.Phase {
	t.Helper()
	phases, err := matrix.Phases()
	if err != nil {
		t.Fatal(err)
	}
	return phases
}

func TestTheFailureMatrixIsThePageOfIt(t *testing.T) {
	path, want := filepath.Join(root, matrixPage), matrix.Page(failureMatrix(t))
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // everybody reads documentation
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("%s; 'go test ./internal/treetest -run FailureMatrix -update' writes it (-want +got):\n%s", matrixPage, diff)
	}
}

// testsOf are the tests of a package, and the texts in its test files, of which the names
// of subtests are made.
type testsOf struct{ functions, texts map[string]bool }

func readTests(t *testing.T, folder string) testsOf {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := testsOf{map[string]bool{}, map[string]bool{}}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				found.functions[n.Name.Name] = true
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					found.texts[strings.ReplaceAll(text, " ", "_")] = true
				}
			}
			return true
		})
	}
	return found
}

// statesOfDomains are names of subtests that are constants of package hv.
var statesOfDomains = []string{"running", "paused", "stopped"}

// has reports whether the package has the test, as far as the text of it says: the name of a
// subtest is a text of the package, begins with one, or is part of one. The report of the
// matrix finds out what is left.
func (p testsOf) has(name string) bool {
	parts := strings.Split(name, "/")
	for _, part := range parts[1:] {
		known := p.texts[part] || slices.Contains(statesOfDomains, part)
		for text := range p.texts {
			const enough = 4 // characters that are no accident
			known = known || len(text) >= enough && strings.HasPrefix(part, text) || len(part) >= enough && strings.Contains(text, part)
		}
		if !known {
			return false
		}
	}
	return p.functions[parts[0]]
}

func TestEveryTestThatTheFailureMatrixNamesIsThere(t *testing.T) {
	read := map[string]testsOf{}
	for _, phase := range failureMatrix(t) {
		for _, r := range phase.Rows {
			for _, test := range r.Tests {
				if _, ok := read[test.Package]; !ok {
					read[test.Package] = readTests(t, test.Package)
				}
				if !read[test.Package].has(test.Name) {
					t.Errorf("row %s names %s of %s, which is not there", r.ID, test.Name, test.Package)
				}
			}
		}
	}
	if read["test/e2e"].has("TestKillAtEveryStepOfAMoveUnderARunningGoose") || read["test/e2e"].has("TestMain/no_such_subtest") {
		t.Error("a test that is not there is found")
	}
}

// What make test-crash says of the rows that it leaves is worth what it reads in the Makefile.
func TestOfMostRowsOfTheFailureMatrixTheCrashTestsRunARealTest(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets, err := matrix.ReadTargets(string(makefile))
	if err != nil {
		t.Fatal(err)
	}
	rows, struck := 0, 0
	for _, phase := range failureMatrix(t) {
		for _, r := range phase.Rows {
			rows++
			if slices.ContainsFunc(r.Tests, func(test matrix.Test) bool { return test.Made != matrix.Fake && targets.Runs("test-crash", test) }) {
				struck++
			}
		}
	}
	if struck <= rows/2 || struck == rows {
		t.Errorf("make test-crash has real tests of %d of %d rows: the Makefile is not read right", struck, rows)
	}
}
