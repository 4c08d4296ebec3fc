// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"go/ast"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
)

// longComment is the least number of words of a comment in the list of long ones.
const longComment = 25

// sample prints so many passages of each kind, which a seed chooses.
func (t *tree) sample(out io.Writer, number int, seed uint64) {
	comments, long := t.docComments()
	for _, kind := range []struct {
		name     string
		passages []string
	}{
		{"doc comments", comments},
		{fmt.Sprintf("doc comments of %d words and more", longComment), long},
		{"changelog entries", t.changes()},
		{"titles of commits", titles()},
	} {
		lot := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the choice has to be the same each time
		fmt.Fprintf(out, "## %s: %d of %d\n\n", kind.name, min(number, len(kind.passages)), len(kind.passages))
		for i, at := range lot.Perm(len(kind.passages))[:min(number, len(kind.passages))] {
			fmt.Fprintf(out, "%d. %s\n", i+1, kind.passages[at])
		}
		fmt.Fprintln(out)
	}
}

// docComments returns the comments of the product's declarations, and the long ones among them.
func (t *tree) docComments() (all, long []string) {
	t.shipped(func(s *source, d ast.Decl) {
		var doc *ast.CommentGroup
		switch d := d.(type) {
		case *ast.FuncDecl:
			doc = d.Doc
		case *ast.GenDecl:
			doc = d.Doc
		}
		if doc == nil {
			return
		}
		words := strings.Fields(doc.Text())
		passage := fmt.Sprintf("%s: %s", t.files.Position(d.Pos()), strings.Join(words, " "))
		all = append(all, passage)
		if len(words) >= longComment {
			long = append(long, passage)
		}
	})
	return all, long
}

func (t *tree) changes() []string {
	var entries []string
	for line := range strings.Lines(t.documents["CHANGELOG.md"]) {
		if strings.HasPrefix(line, "* ") {
			entries = append(entries, strings.TrimSpace(line))
		}
	}
	return entries
}

// titles returns the titles of the last two hundred commits, and none outside of a clone.
func titles() []string {
	out, err := exec.CommandContext(context.Background(), "git", "log", "-200", "--no-merges", "--format=%s").Output()
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}
