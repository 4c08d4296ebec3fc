// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A source is a file of Go.
type source struct {
	path string
	text string
	file *ast.File
}

// A tree has the sources and documents of the repository.
type tree struct {
	files     *token.FileSet
	sources   []source
	documents map[string]string // by path, files of Markdown
}

// programs are the top folders of the shipped code.
var programs = []string{"ctl", "daemon", "internal", "registry"}

// read reads the tree in the directory root.
func read(root string) (*tree, error) {
	t := &tree{files: token.NewFileSet(), documents: map[string]string{}}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); base != "." && (base[0] == '.' || slices.Contains([]string{"bin", "build", "dist", "testdata"}, base)) {
				return fs.SkipDir
			}
			return nil
		}
		extension := path.Ext(name)
		if extension != ".go" && extension != ".md" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if extension == ".go" {
			return t.parse(name, string(text))
		}
		t.documents[name] = string(text)
		return nil
	})
	return t, err
}

func (t *tree) parse(name, text string) error {
	file, err := parser.ParseFile(t.files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	t.sources = append(t.sources, source{name, text, file})
	return err
}

// kit matches the folders of fakes, of suites that both a fake and the real thing pass, and of
// what else only tests import.
var kit = regexp.MustCompile(`(^|/)[a-z]*test(/|$)`)

// isTest reports whether a file is a unit test.
func (s *source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// isKit reports whether only tests import the file's package.
func (s *source) isKit() bool {
	return !s.isTest() && kit.MatchString(path.Dir(s.path))
}

// isShipped reports whether the packages have the file's code.
func (s *source) isShipped() bool {
	top, _, _ := strings.Cut(s.path, "/")
	return slices.Contains(programs, top) && !s.isTest() && !s.isKit()
}

// isUnitTest reports whether the file is a test of a program's package, and needs no lab.
func (s *source) isUnitTest() bool {
	top, _, _ := strings.Cut(s.path, "/")
	return slices.Contains(programs, top) && s.isTest()
}

// code counts the lines that are neither empty nor all comment.
func (t *tree) code(s *source) int {
	lines := map[int]bool{}
	for i, line := range strings.Split(s.text, "\n") {
		if strings.TrimSpace(line) != "" {
			lines[i+1] = true
		}
	}
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			first, last := t.files.Position(c.Pos()), t.files.Position(c.End())
			for line := first.Line; line <= last.Line; line++ {
				before := strings.Split(s.text, "\n")[line-1]
				if line > first.Line || strings.TrimSpace(before[:first.Column-1]) == "" {
					delete(lines, line)
				}
			}
		}
	}
	return len(lines)
}
