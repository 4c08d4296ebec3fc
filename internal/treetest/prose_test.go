// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A passage is a comment, a message, or a paragraph of a document, in one line.
type passage struct {
	line int
	text string
}

var (
	fenced     = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	inCode     = regexp.MustCompile("`[^`\n]*`")
	notNewline = regexp.MustCompile(`[^\n]`)
)

// prose returns the passages of a file that people read as English. It returns none of a file
// of another kind than Go, SQL, Markdown, shell and configuration.
func prose(t *testing.T, name, text string) []passage {
	t.Helper()
	switch path.Ext(name) {
	case ".go":
		return proseOfGo(t, name, text)
	case ".md":
		// The quoted examples of the style are its subject.
		if name == "STYLE.md" {
			return nil
		}
		text = fenced.ReplaceAllStringFunc(text, func(s string) string { return notNewline.ReplaceAllString(s, " ") })
		return proseOfLines(inCode.ReplaceAllString(text, "CODE"), "")
	case ".sql":
		return proseOfLines(text, "--")
	case ".sh", ".toml", ".yaml", ".service", ".socket", ".timer":
		return proseOfLines(text, "#")
	}
	return nil
}

// proseOfLines joins adjacent lines that begin with the mark of a comment, or, where the mark is
// empty, the lines between two empty lines. A row of a table and an item of a list begin a passage.
func proseOfLines(text, mark string) []passage {
	var found []passage
	open := false
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		rest, ok := strings.CutPrefix(line, mark)
		if !ok || strings.TrimSpace(rest) == "" {
			open = false
			continue
		}
		rest = strings.TrimSpace(rest)
		if begins := strings.HasPrefix(rest, "|") || strings.HasPrefix(rest, "* ") || strings.HasPrefix(rest, "- "); open && !begins {
			found[len(found)-1].text += " " + rest
			continue
		}
		found, open = append(found, passage{i + 1, rest}), true
	}
	return found
}

// proseOfGo returns the comments of a file and, unless it is a test, its string literals that
// have two words or more.
func proseOfGo(t *testing.T, name, text string) []passage {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var found []passage
	add := func(at token.Pos, text string) {
		found = append(found, passage{files.Position(at).Line, strings.Join(strings.Fields(text), " ")})
	}
	for _, group := range file.Comments {
		add(group.Pos(), group.Text())
	}
	if strings.HasSuffix(name, "_test.go") {
		return found
	}
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING || literal.Value[0] == '`' {
			return true
		}
		if value, err := strconv.Unquote(literal.Value); err == nil && strings.Contains(strings.TrimSpace(value), " ") {
			add(literal.Pos(), value)
		}
		return true
	})
	return found
}

func TestProseIsCommentsMessagesAndParagraphs(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []passage
	}{
		{
			"a.go", "package a\n\n// F opens\n// a file.\nfunc F() { g(\"open it now\", \"word\", `raw text here`) }\n",
			[]passage{{3, "F opens a file."}, {5, "open it now"}},
		},
		{"a_test.go", "package a\n\n// T is a test.\nvar t = \"not a message\"\n", []passage{{3, "T is a test."}}},
		{
			"a.md", "# A `b`\n\nOne\ntwo.\n\n```\ncode here\n```\n- item\n  more\n- other\n",
			[]passage{{1, "# A CODE"}, {3, "One two."}, {9, "- item more"}, {11, "- other"}},
		},
		{"a.sql", "-- one\n-- two\nCREATE TABLE t;\n-- three\n", []passage{{1, "one two"}, {4, "three"}}},
		{"a.bin", "nothing of it", nil},
	} {
		got := prose(t, c.name, c.text)
		if len(got) != len(c.want) {
			t.Errorf("%s has %v, want %v", c.name, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s has %v, want %v", c.name, got[i], c.want[i])
			}
		}
	}
}
