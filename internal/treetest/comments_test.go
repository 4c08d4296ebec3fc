// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// testName is the name of a test: its comment may begin with anything.
var testName = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)`)

// misnamed returns the first word of a function's comment if it is the name of something else:
// the function was renamed, and its comment was not. A word in lower case is taken for a name,
// and a word with a capital only if another function of the folder has that name.
func misnamed(f *ast.FuncDecl, functions map[string]bool) string {
	words := strings.Fields(f.Doc.Text())
	if len(words) == 0 || testName.MatchString(f.Name.Name) {
		return ""
	}
	word := strings.TrimRight(words[0], ".,:;()")
	first, _ := utf8.DecodeRuneInString(word)
	if word == f.Name.Name || !unicode.IsLower(first) && !functions[word] {
		return ""
	}
	return word
}

func TestACommentOfAFunctionNamesThatFunction(t *testing.T) {
	parsed := map[string][]*ast.File{} // by folder
	files := token.NewFileSet()
	eachFile(t, func(path, text string) {
		if filepath.Ext(path) != ".go" {
			return
		}
		file, err := parser.ParseFile(files, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed[filepath.Dir(path)] = append(parsed[filepath.Dir(path)], file)
	})
	checked := 0
	for _, folder := range parsed {
		functions := map[string]bool{}
		for _, f := range declaredFunctions(folder) {
			functions[f.Name.Name] = true
		}
		for _, f := range declaredFunctions(folder) {
			if f.Doc == nil {
				continue
			}
			checked++
			if word := misnamed(f, functions); word != "" {
				t.Errorf("%s: the comment of %s is about %q", files.Position(f.Pos()), f.Name.Name, word)
			}
		}
	}
	if checked < 1000 {
		t.Fatalf("found %d functions with a comment; this test looks at the wrong place", checked)
	}
}

func declaredFunctions(files []*ast.File) []*ast.FuncDecl {
	var functions []*ast.FuncDecl
	for _, file := range files {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				functions = append(functions, f)
			}
		}
	}
	return functions
}

func TestACommentWithTheNameOfBeforeIsFound(t *testing.T) {
	const source = `package p

// through sends a change.
func send() {}

// Send sends a change.
func sendAll() {}

// Send sends a change.
func Send() {}

// It does nothing.
func nothing() {}

// qemu-img is asked first.
func TestAnything() {}

func bare() {}
`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"send": "through", "sendAll": "Send"}
	for _, f := range declaredFunctions([]*ast.File{file}) {
		if got := misnamed(f, map[string]bool{"Send": true}); got != want[f.Name.Name] {
			t.Errorf("the comment of %s is about %q, want %q", f.Name.Name, got, want[f.Name.Name])
		}
	}
}

// commentColumns is where a line of a comment ends at the latest, with tabs of four columns.
const commentColumns = 100

func TestLinesOfCommentsEndBeforeColumn100(t *testing.T) {
	eachFile(t, func(name, text string) {
		if filepath.Ext(name) != ".go" {
			return
		}
		number := 0
		for line := range strings.Lines(text) {
			number++
			line = strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "    ")
			if strings.HasPrefix(strings.TrimSpace(line), "//") && utf8.RuneCountInString(line) > commentColumns {
				t.Errorf("%s:%d: the comment ends at column %d", name, number, utf8.RuneCountInString(line))
			}
		}
	})
}
