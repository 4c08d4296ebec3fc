// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

type measure struct{ name, value string }

// A type with more than manyMethods, an interface with more than wideInterface, and a package with
// more than manyFiles is named.
const manyMethods, wideInterface, manyFiles = 60, 8, 40

func (t *tree) measures() []measure {
	tests, files := t.kindTests()
	return []measure{
		{fmt.Sprintf("types with more than %d methods", manyMethods), t.largest(t.methods(), manyMethods)},
		{fmt.Sprintf("interfaces with more than %d methods", wideInterface), t.largest(t.interfaces(), wideInterface)},
		{"ports that a step may call, methods, by package", t.ports()},
		{"op kinds of migrations", fmt.Sprint(t.migrationKinds())},
		{"tests of the kind of a storage, files", fmt.Sprintf("%d, %d", tests, files)},
		{"files in package main of the daemon", fmt.Sprint(t.filesByPackage()["daemon"])},
		{fmt.Sprintf("packages with more than %d files", manyFiles), t.largest(t.filesByPackage(), manyFiles)},
		{"fakes and suites, lines of code", fmt.Sprint(t.lines((*source).isKit))},
		{"product, lines of code", fmt.Sprint(t.lines((*source).isShipped))},
		{"unit tests, lines of code", fmt.Sprint(t.lines((*source).isUnitTest))},
		{"words of DESIGN.md", fmt.Sprint(t.words(func(name string) bool { return path.Base(name) == "DESIGN.md" }))},
		{"words of CHANGELOG.md", fmt.Sprint(t.words(func(name string) bool { return name == "CHANGELOG.md" }))},
		{"words of docs/, without evidence", fmt.Sprint(t.words(func(name string) bool {
			return strings.HasPrefix(name, "docs/") && !strings.HasPrefix(name, "docs/evidence/")
		}))},
		{"words of comments of the product", fmt.Sprint(t.commentWords())},
	}
}

// shipped calls f for each declaration of the product.
func (t *tree) shipped(f func(s *source, d ast.Decl)) {
	for i := range t.sources {
		if s := &t.sources[i]; s.isShipped() {
			for _, d := range s.file.Decls {
				f(s, d)
			}
		}
	}
}

// methods counts the methods of each type of the product, by package and name.
func (t *tree) methods() map[string]int {
	count := map[string]int{}
	t.shipped(func(s *source, d ast.Decl) {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv == nil {
			return
		}
		receiver := f.Recv.List[0].Type
		if star, ok := receiver.(*ast.StarExpr); ok {
			receiver = star.X
		}
		if index, ok := receiver.(*ast.IndexExpr); ok {
			receiver = index.X
		}
		if name, ok := receiver.(*ast.Ident); ok {
			count[path.Dir(s.path)+"."+name.Name]++
		}
	})
	return count
}

// interfaces counts the methods of each interface of the product, with the methods of embedded
// interfaces of the same package.
func (t *tree) interfaces() map[string]int {
	declared := map[string]*ast.InterfaceType{}
	t.shipped(func(s *source, d ast.Decl) {
		general, ok := d.(*ast.GenDecl)
		if !ok {
			return
		}
		for _, spec := range general.Specs {
			if named, ok := spec.(*ast.TypeSpec); ok {
				if face, ok := named.Type.(*ast.InterfaceType); ok {
					declared[path.Dir(s.path)+"."+named.Name.Name] = face
				}
			}
		}
	})
	count := map[string]int{}
	for name, face := range declared {
		count[name] = methodsOf(declared, name, face)
	}
	return count
}

func methodsOf(declared map[string]*ast.InterfaceType, name string, face *ast.InterfaceType) int {
	many := 0
	for _, field := range face.Methods.List {
		many += len(field.Names)
		var embedded string
		switch e := field.Type.(type) {
		case *ast.Ident:
			embedded = name[:strings.LastIndexByte(name, '.')+1] + e.Name
		case *ast.SelectorExpr:
			if pkg, ok := e.X.(*ast.Ident); ok {
				embedded = "/" + pkg.Name + "." + e.Sel.Name
			}
		}
		for other, face := range declared {
			if len(field.Names) == 0 && embedded != "" && (other == embedded || strings.HasSuffix(other, embedded)) {
				many += methodsOf(declared, other, face)
				break
			}
		}
	}
	return many
}

// ports counts the methods of the interfaces of each package of the steps of a migration.
func (t *tree) ports() string {
	sizes := map[string]int{}
	for name, methods := range t.interfaces() {
		if of, ok := strings.CutPrefix(name, "daemon/internal/migrate/"); ok && !strings.HasPrefix(of, "move.") && !strings.HasPrefix(of, "migratetest.") {
			if pkg, face, ok := strings.Cut(of, "."); ok && !ast.IsExported(face) {
				sizes[pkg] += methods
			}
		}
	}
	return t.largest(sizes, 0)
}

// largest lists the entries over a size, the largest first.
func (t *tree) largest(sizes map[string]int, over int) string {
	names := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b))
	})
	var list []string
	for _, name := range names {
		if sizes[name] > over {
			list = append(list, fmt.Sprintf("%s %d", name, sizes[name]))
		}
	}
	return fmt.Sprintf("%d: %s", len(list), strings.Join(list, ", "))
}

var migrationKind = regexp.MustCompile(`(?m)^\s*(?:const )?Kind\w+\s*=\s*"migration_`)

func (t *tree) migrationKinds() int {
	many := 0
	for i := range t.sources {
		if s := &t.sources[i]; s.isShipped() {
			many += len(migrationKind.FindAllString(s.text, -1))
		}
	}
	return many
}

// kindNames are predicates and fields that tell the kind of a storage. A decision asks a property
// instead (medium.Kind).
var kindNames = map[string]bool{
	"IsNetwork": true, "IsRBD": true, "IsNBD": true, "IsSlice": true, "IsLUKS": true, "IsRemote": true, "IsLinkedClone": true,
	"IsDevicePath": true, "DstBlock": true, "SrcBlock": true, "ConnectDst": true, "KeepsBase": true,
}

// kindTests counts the uses of these names in the product, and the files with one.
func (t *tree) kindTests() (tests, files int) {
	for i := range t.sources {
		s := &t.sources[i]
		if !s.isShipped() {
			continue
		}
		before := tests
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if kindNames[n.Sel.Name] {
					tests++
				}
			case *ast.CallExpr:
				if name, ok := n.Fun.(*ast.Ident); ok && kindNames[name.Name] {
					tests++
				}
			}
			return true
		})
		if tests > before {
			files++
		}
	}
	return tests, files
}

// filesByPackage counts the product's files of each package.
func (t *tree) filesByPackage() map[string]int {
	count := map[string]int{}
	for i := range t.sources {
		if s := &t.sources[i]; s.isShipped() {
			count[path.Dir(s.path)]++
		}
	}
	return count
}

// lines counts the lines of code of some of the sources.
func (t *tree) lines(of func(*source) bool) int {
	many := 0
	for i := range t.sources {
		if s := &t.sources[i]; of(s) {
			many += t.code(s)
		}
	}
	return many
}

func (t *tree) words(of func(name string) bool) int {
	many := 0
	for name, text := range t.documents {
		if of(name) {
			many += len(strings.Fields(text))
		}
	}
	return many
}

func (t *tree) commentWords() int {
	many := 0
	for i := range t.sources {
		if s := &t.sources[i]; s.isShipped() {
			for _, group := range s.file.Comments {
				many += len(strings.Fields(group.Text()))
			}
		}
	}
	return many
}
