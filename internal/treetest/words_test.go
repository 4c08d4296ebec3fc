// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// The words of ARCHITECTURE.md are those of the code: each of them is there, and what
// the document says not to call a thing is in no name. These are the exceptions, by the
// beginning of the path and the word, with the reason.
var wordsLetBe = []struct{ under, word, reason string }{
	{"daemon/internal/image/", "lease", "the kernel calls it so: fcntl(F_SETLEASE)"},
	{"daemon/internal/location/", "tell", "that two paths cannot be told apart is no message to anybody"},
	{"daemon/internal/volume/", "tell", "that two paths cannot be told apart is no message to anybody"},
}

// documentedWords reads the glossary: the words, each with one or several names, and
// what nothing may be called.
func documentedWords(t *testing.T) (words []string, forbidden map[string]string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(data), "\n## Words\n")
	section, _, _ = strings.Cut(section, "\n## ")
	forbidden = map[string]string{}
	forbid := func(list, instead string) {
		for _, w := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }) {
			forbidden[w] = instead
		}
	}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "| "), cells[0] == "word", cells[0] == "not":
		case len(cells) == 4:
			names := strings.Split(cells[0], ", ")
			words = append(words, names...)
			forbid(cells[3], names[0])
		case len(cells) == 2:
			forbid(cells[0], cells[1])
		default:
			t.Errorf("the row of %q has %d cells", cells[0], len(cells))
		}
	}
	if len(words) < 20 || len(forbidden) < 20 {
		t.Fatalf("found %d words and %d forbidden ones; this test looks at the wrong place", len(words), len(forbidden))
	}
	return words, forbidden
}

// namedWords splits a name of the code into its words: "DstMayBeTorn" is dst may be torn.
func namedWords(name string) []string {
	var words []string
	for part := range strings.SplitSeq(name, "_") {
		runes, begin := []rune(part), 0
		for i := 1; i <= len(runes); i++ {
			next := i == len(runes)
			if !next && unicode.IsUpper(runes[i]) {
				next = !unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])
			}
			if next {
				words = append(words, strings.ToLower(string(runes[begin:i])))
				begin = i
			}
		}
	}
	return words
}

// declaredNames returns the names of a Go file's types, functions, fields, methods,
// variables and constants, and its own. Those of tests are sentences and are left out.
func declaredNames(t *testing.T, name, text string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{strings.TrimSuffix(path.Base(name), ".go")}
	add := func(idents ...*ast.Ident) {
		for _, id := range idents {
			names = append(names, id.Name)
		}
	}
	test := regexp.MustCompile(`^(Test|Benchmark|Fuzz)[A-Z]`)
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if !test.MatchString(d.Name.Name) {
				add(d.Name)
			}
		case *ast.GenDecl:
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncLit:
					return false
				case *ast.TypeSpec:
					add(n.Name)
				case *ast.ValueSpec:
					add(n.Names...)
				case *ast.StructType:
					for _, f := range n.Fields.List {
						add(f.Names...)
					}
				case *ast.InterfaceType:
					for _, f := range n.Methods.List {
						add(f.Names...)
					}
				}
				return true
			})
		}
	}
	return names
}

func TestTheWordsOfTheGlossaryAreThoseOfTheCode(t *testing.T) {
	words, forbidden := documentedWords(t)
	missing := map[string][]string{}
	for _, w := range words {
		missing[w] = strings.Fields(w)
	}
	eachFile(t, func(name, text string) {
		if path.Ext(name) != ".go" || strings.HasPrefix(name, "test/") {
			return
		}
		for _, declared := range declaredNames(t, name, text) {
			in := namedWords(declared)
			for _, w := range in {
				if instead, bad := forbidden[w]; bad && !letBe(name, w) {
					t.Errorf("%s: %s has the word %q; ARCHITECTURE.md calls it: %s", name, declared, w, instead)
				}
			}
			for w, parts := range missing {
				for i := range in {
					if len(in)-i >= len(parts) && slices.Equal(in[i:i+len(parts)], parts) {
						delete(missing, w)
						break
					}
				}
			}
		}
	})
	for w := range missing {
		t.Errorf("ARCHITECTURE.md explains %q, and nothing in the code is called so", w)
	}
}

func letBe(name, word string) bool {
	for _, e := range wordsLetBe {
		if e.word == word && strings.HasPrefix(name, e.under) {
			return true
		}
	}
	return false
}

func TestNamesAreSplitIntoTheirWords(t *testing.T) {
	for name, want := range map[string]string{
		"DstMayBeTorn": "dst may be torn", "hostID": "host id", "HTTPServer": "http server", "split_brain_test": "split brain test", "x": "x", "ForOpID2": "for op id2",
	} {
		if got := strings.Join(namedWords(name), " "); got != want {
			t.Errorf("the words of %s are %q, want %q", name, got, want)
		}
	}
}
