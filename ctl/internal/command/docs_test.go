// SPDX-License-Identifier: Apache-2.0

package command

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
)

// The program accepts the documentation's commands: each gets as far as connecting to a socket
// without a listener.
func TestCommandsOfTheDocumentationAreUnderstood(t *testing.T) {
	const root = "../../.."
	pages := []string{filepath.Join(root, "README.md")}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("VOLFERRY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	seen := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range shellLines(string(text)) {
			args := typed(line)
			if args == nil {
				continue
			}
			seen++
			want := api.ExitUnavailable
			if slices.Contains(args, "watch") { // it would wait a minute for a listener
				args, want = append(args, "--help"), api.ExitDone
			}
			app := newApp(io.Discard, io.Discard)
			err := app.RunContext(t.Context(), cmdline.Arrange(app, args))
			if message, exit := outcome(err); exit != want {
				t.Errorf("%s: %s: exit status %d, %s", page, line, exit, message)
			}
		}
	}
	if seen < 100 {
		t.Errorf("the documentation has %d commands; this test looks at the wrong place", seen)
	}
}

func outcome(err error) (string, int) {
	if err == nil {
		return "", api.ExitDone
	}
	body, exit := classify(err)
	return body.Message, exit
}

// shellLines returns the lines of a page's shell blocks, without comments.
func shellLines(page string) []string {
	var lines []string
	fenced, shell, before := false, false, ""
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if language, isFence := strings.CutPrefix(line, "```"); isFence {
			fenced = !fenced
			shell = fenced && language == "sh"
			continue
		}
		if !shell {
			continue
		}
		command, _, _ := strings.Cut(before+line, " # ")
		var goesOn bool
		if before, goesOn = strings.CutSuffix(command, `\`); !goesOn {
			lines, before = append(lines, command), ""
		}
	}
	return lines
}

// typed returns the arguments in a line, without the page's socket; nil for another program's line.
func typed(line string) []string {
	line, _, _ = strings.Cut(line, ";")
	args := words(line)
	if at := slices.IndexFunc(args, isTheShells); at >= 0 {
		args = args[:at]
	}
	for i, word := range args {
		if strings.HasPrefix(word, `"$`) {
			args[i] = "/value-of-a-variable"
		}
	}
	if len(args) < 2 || args[0] != session.Program {
		return nil
	}
	for _, flag := range []string{"--socket", "--ca", "--cert", "--key"} {
		if at := slices.Index(args, flag); at >= 0 {
			args = slices.Delete(args, at, at+2)
		}
	}
	return args
}

// isTheShells reports whether a word begins a pipe or a redirection.
func isTheShells(word string) bool {
	return strings.HasPrefix(word, "|") || strings.HasPrefix(word, "<")
}

// words splits a line into words; some are in single quotes.
func words(line string) []string {
	var out []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}
