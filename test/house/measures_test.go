// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/token"
	"maps"
	"testing"
)

func treeOf(t *testing.T, files map[string]string) *tree {
	t.Helper()
	made := &tree{files: token.NewFileSet()}
	for name, text := range files {
		if err := made.parse(name, text); err != nil {
			t.Fatal(err)
		}
	}
	return made
}

func TestMethodsAreCountedByTypeWithoutThoseOfTestsAndFakes(t *testing.T) {
	got := treeOf(t, map[string]string{
		"daemon/a/a.go":          "package a\n\ntype T struct{}\n\nfunc (T) A() {}\nfunc (*T) B() {}\n\ntype G[X any] struct{}\n\nfunc (*G[X]) A() {}\n",
		"daemon/a/a_test.go":     "package a\n\nfunc (T) C() {}\n",
		"daemon/a/atest/fake.go": "package atest\n\ntype T struct{}\n\nfunc (T) A() {}\n",
		"test/b/b.go":            "package b\n\ntype T struct{}\n\nfunc (T) A() {}\n",
	}).methods()
	if want := map[string]int{"daemon/a.T": 2, "daemon/a.G": 1}; !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

func TestAnInterfaceHasTheMethodsOfThoseThatItEmbeds(t *testing.T) {
	got := treeOf(t, map[string]string{
		"daemon/a/a.go": "package a\n\ntype I interface {\n\tA()\n\tb.J\n}\n",
		"daemon/b/b.go": "package b\n\ntype J interface {\n\tB()\n\tK\n}\n\ntype K interface{ C() }\n",
	}).interfaces()
	if want := map[string]int{"daemon/a.I": 3, "daemon/b.J": 2, "daemon/b.K": 1}; !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

func TestACodeLineIsNeitherEmptyNorAllComment(t *testing.T) {
	tree := treeOf(t, map[string]string{"daemon/a.go": "// A comment.\npackage a // counts\n\n/* one\ntwo */\nvar x = 1 /* and\nmore */\n"})
	if got := tree.code(&tree.sources[0]); got != 2 {
		t.Errorf("counted %d lines, want 2", got)
	}
}

func TestAKindTestIsACallOrAFieldOfThatName(t *testing.T) {
	tests, files := treeOf(t, map[string]string{
		"daemon/a.go": "package a\n\nfunc f(l L) bool { return l.IsRBD() || l.DstBlock || IsNBD(l) }\n",
		"daemon/b.go": "package a\n\nfunc (L) IsRBD() bool { return false }\n",
	}).kindTests()
	if tests != 3 || files != 1 {
		t.Errorf("counted %d in %d files, want 3 in 1", tests, files)
	}
}
