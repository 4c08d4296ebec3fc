// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// nothing is an importer of packages that declare nothing: what files use of their own
// package is seen without the others, which would have to be compiled for it.
type nothing struct{}

func (nothing) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	return p, nil
}

// uses are the declarations that the files of a package use of its other files, by the file
// that uses and the file that declares.
type uses map[string]map[string][]string

// fileUses finds them: types, functions, variables, constants, and methods where they are
// defined. Fields are their type's. A method that is called on what another package returns
// is not seen.
func fileUses(t *testing.T, p *goPackage) uses {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	checker := types.Config{Importer: nothing{}, Error: func(error) {}}
	this, _ := checker.Check(p.ImportPath, fset, files, info) // its errors are of what the others do not declare
	in := func(pos token.Pos) string { return filepath.Base(fset.Position(pos).Filename) }
	found := uses{}
	for id, obj := range info.Uses {
		if f, ok := obj.(*types.Func); ok {
			obj = f.Origin()
		}
		from, to := in(id.Pos()), in(obj.Pos())
		if from == to || obj.Pkg() != this || obj.Parent() != this.Scope() && !isMethod(obj) {
			continue
		}
		if found[from] == nil {
			found[from] = map[string][]string{}
		}
		if !slices.Contains(found[from][to], obj.Name()) {
			found[from][to] = append(found[from][to], obj.Name())
		}
	}
	return found
}

// isMethod reports whether an object is a method of a type; those of interfaces are the
// interface's.
func isMethod(obj types.Object) bool {
	f, ok := obj.(*types.Func)
	return ok && f.Signature().Recv() != nil && !types.IsInterface(f.Signature().Recv().Type())
}

// reached returns the files that a file uses, directly or through others.
func (u uses) reached(from string) map[string]bool {
	seen := map[string]bool{}
	for todo := []string{from}; len(todo) > 0; todo = todo[1:] {
		for to := range u[todo[0]] {
			if !seen[to] {
				seen[to] = true
				todo = append(todo, to)
			}
		}
	}
	return seen
}

// knots returns the groups of files that all use each other, directly or through others of
// the group.
func (u uses) knots() [][]string {
	var found [][]string
	done := map[string]bool{}
	for _, f := range slices.Sorted(maps.Keys(u)) {
		if done[f] {
			continue
		}
		var group []string
		for _, other := range slices.Sorted(maps.Keys(u.reached(f))) {
			if u.reached(other)[f] {
				group = append(group, other)
				done[other] = true
			}
		}
		if len(group) > 1 {
			found = append(found, group)
		}
	}
	return found
}

// describe says what the files of a knot use of each other.
func (u uses) describe(group []string) string {
	var lines []string
	for _, from := range group {
		for _, to := range group {
			if names := u[from][to]; len(names) > 0 {
				slices.Sort(names)
				lines = append(lines, fmt.Sprintf("\t%s uses %s of %s", from, strings.Join(names, ", "), to))
			}
		}
	}
	return strings.Join(lines, "\n")
}

// The files of a package are in an order, in which each uses those below it alone. Who
// reads a package can so begin with the lowest, or at the top.
func TestTheFilesOfAPackageUseEachOtherInOneDirection(t *testing.T) {
	for _, p := range packages(t) {
		found := fileUses(t, p)
		for _, group := range found.knots() {
			t.Errorf("%s: %s use each other; move a declaration to the file that is below:\n%s", p.rel(), strings.Join(group, ", "), found.describe(group))
		}
	}
}

func TestAKnotIsFoundHoweverLongItIs(t *testing.T) {
	u := uses{
		"a": {"b": nil, "d": nil}, "b": {"c": nil}, "c": {"a": nil, "e": nil},
		"f": {"g": nil}, "g": {"f": nil, "a": nil}, "h": {"a": nil, "f": nil},
	}
	if diff := cmp.Diff([][]string{{"a", "b", "c"}, {"f", "g"}}, u.knots()); diff != "" {
		t.Errorf("knots (-want +got)\n%s", diff)
	}
}
