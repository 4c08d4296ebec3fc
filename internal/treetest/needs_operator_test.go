// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"go/ast"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// standstills is a table of the functions of the daemon and of the registry that have an op, or a
// move, wait for the operator.
const standstills = "testdata/needs_operator.txt"

// Each function that has an op wait for the operator is in a table, with the test in which
// what the error says to do is done and brings the op to its end, or with why there is none.
func TestEveryStandstillIsTriedOrSaysWhatItLacks(t *testing.T) {
	text, err := os.ReadFile(standstills)
	if err != nil {
		t.Fatal(err)
	}
	there := standstillsIn(t, "daemon", "registry")
	known := maps.Clone(there)
	read := map[string]testsOf{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, says, _ := strings.Cut(line, ": ")
		kind, what, _ := strings.Cut(says, " ")
		function, _, branch := strings.Cut(name, " (")
		if !known[function] {
			t.Errorf("%s has %q, which has no op wait for the operator", standstills, name)
		}
		if !branch {
			delete(there, name)
		}
		switch folder, test, _ := strings.Cut(what, " "); {
		case kind == "lacks" && what != "", kind == "without" && branch && what != "":
		case kind != "tried":
			t.Errorf("%s: %q is neither 'tried PACKAGE TEST' nor 'lacks WHY', nor of a branch 'without WHY'", standstills, line)
		default:
			if _, ok := read[folder]; !ok {
				read[folder] = readTests(t, folder)
			}
			if !read[folder].has(test) {
				t.Errorf("%s names %s of %s, which is not there", standstills, test, folder)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		t.Errorf("%s lacks %q", standstills, name)
	}
}

// standstillsIn are the functions below these folders that call op.UnknownOutcome, make an error
// with needs_operator, or set that code or that state, each behind its package.
func standstillsIn(t *testing.T, folders ...string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	eachSource(t, folders, func(s source) {
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && standsStill(f) {
				found[s.pkg+" "+f.Name.Name] = true
			}
		}
	})
	return found
}

func standsStill(f *ast.FuncDecl) (stands bool) {
	is := func(e ast.Expr, pkg, name string) bool {
		s, ok := e.(*ast.SelectorExpr)
		if !ok || s.Sel.Name != name {
			return false
		}
		x, ok := s.X.(*ast.Ident)
		return ok && x.Name == pkg
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			stands = stands || is(n.Fun, "op", "UnknownOutcome") || len(n.Args) > 1 && is(n.Args[0], "api", "CodeNeedsOperator")
		case *ast.AssignStmt:
			stands = stands || slices.ContainsFunc(n.Rhs, func(e ast.Expr) bool {
				return is(e, "api", "CodeNeedsOperator") || is(e, "api", "MigrationNeedsOperator")
			})
		}
		return !stands
	})
	return stands
}
