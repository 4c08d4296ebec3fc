// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// programs are what operators type by hand.
const programs = `(?:volferryctl|volferry-registry|virsh|qemu-img|systemctl|lvs|lvextend|lvchange|lvconvert|fuser|lsof|chown|chmod|setfacl)`

var (
	verb = regexp.MustCompile(`%(?:\[\d+\])?[-+# 0]*\d*(?:\.\d+)?[a-z]`)
	// bareCommand is a command with a verb in it that stands in no backquotes: the words of a
	// sentence such as "virsh says" are none.
	bareCommand = regexp.MustCompile(`\b` + programs + ` (?:[a-z-]+ )+(?:--?[a-z-]+ )*%(?:\[\d+\])?[svdq]`)
	// quotedCommand is one in single quotes, which may begin with the name of this program.
	quotedCommand = regexp.MustCompile(`'(?:` + programs + `|%(?:\[\d+\])?s) [^']*%(?:\[\d+\])?[svdq][^']*'`)
	// cutCommand is the beginning of a command, to which something is added.
	cutCommand = regexp.MustCompile(`\b` + programs + ` (?:[a-z-]+ )+(?:--?[a-z-]+ )*$`)
	// sentence is what the patterns above may take for a command.
	sentence = regexp.MustCompile(`\b(?:says?|said|of|that|what|is|has) (?:--?[a-z-]+ )*(?:%|$)`)
)

// What an operator is to copy into a shell comes from shell.Line: a host chooses the names of
// its instances and pools, and a header the path of its backing file, so that one may be
// "x;reboot".
func TestNoCommandHoldsANameThatIsNotQuoted(t *testing.T) {
	eachSource(t, programFolders, func(s source) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if text, ok := unquoted(n); ok && hasNameInCommand(text) {
					t.Errorf("%s: the command in %q has to come from shell.Line", s.at(n), text)
				}
			case *ast.BinaryExpr:
				if text := textOf(n.X); n.Op == token.ADD && isCutInCommand(text) {
					t.Errorf("%s: the command that begins in %q has to come from shell.Line", s.at(n), text)
				}
			}
			return true
		})
	})
}

// A word that comes from elsewhere may begin with a hyphen.
func TestNoWordOfACommandBecomesAnOption(t *testing.T) {
	lines := 0
	eachSource(t, programFolders, func(s source) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !isShellLine(call) || len(call.Args) < 2 || call.Ellipsis.IsValid() {
				return true
			}
			lines++
			program, _ := unquoted(call.Args[0])
			if strings.HasPrefix(program, "volferry") || slices.Contains([]string{"", "systemctl", "echo", "grep", "kill"}, program) {
				return true // the registry takes no name that begins with a hyphen, and the words of the others are made here
			}
			ended := false
			for i, word := range call.Args[1:] {
				text, constant := unquoted(word)
				before, _ := unquoted(call.Args[i])
				if ended && text == "--" {
					t.Errorf(`%s: this command of %s has "--" twice, and the second one is taken for an option`, s.at(word), program)
				}
				ended = ended || text == "--"
				if i > 0 && !constant && !ended && !strings.HasPrefix(before, "-") {
					t.Errorf(`%s: a word of this command of %s is neither behind "--" nor the value of an option`, s.at(word), program)
				}
			}
			return true
		})
	})
	if lines < 100 {
		t.Errorf("%d calls of shell.Line were found, and there were more", lines)
	}
}

// hasNameInCommand reports whether a text, mostly a format, has a command with a verb in it.
func hasNameInCommand(text string) bool {
	parts := strings.Split(text, "`")
	for i := 1; i+1 < len(parts); i += 2 {
		if at := verb.FindStringIndex(parts[i]); at != nil && at[0] > 0 {
			return true
		}
	}
	bare := bareCommand.FindString(text)
	return bare != "" && !sentence.MatchString(bare) || quotedCommand.MatchString(text)
}

// isCutInCommand reports whether a text ends within a command.
func isCutInCommand(text string) bool {
	parts := strings.Split(text, "`")
	if last := parts[len(parts)-1]; len(parts)%2 == 0 && last != "" && !strings.Contains(last, "\x00") {
		return true
	}
	bare := cutCommand.FindString(text)
	return bare != "" && !sentence.MatchString(bare)
}

// isShellLine reports whether a call is shell.Line, or Line in package shell.
func isShellLine(call *ast.CallExpr) bool {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name == "Line"
	case *ast.SelectorExpr:
		pkg, ok := f.X.(*ast.Ident)
		return ok && pkg.Name == "shell" && f.Sel.Name == "Line"
	}
	return false
}

// textOf is the text of a sum of which parts are known later.
func textOf(e ast.Expr) string {
	if sum, ok := e.(*ast.BinaryExpr); ok && sum.Op == token.ADD {
		return textOf(sum.X) + textOf(sum.Y)
	}
	text, known := unquoted(e)
	if !known {
		return "\x00"
	}
	return text
}

func unquoted(e ast.Expr) (string, bool) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil
}
