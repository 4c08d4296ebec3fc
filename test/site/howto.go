// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Block is what a page of the documentation shows at once: commands, and what they
// print.
type Block struct {
	Heading  string // of the section that it is in
	Commands []string
	Shown    string // empty where the page does not show it
}

// ReadPage reads the blocks of a page, whose path begins at the top of the source
// tree, in their order.
func ReadPage(page string) ([]Block, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, fmt.Errorf("read page: %w", err)
	}
	var blocks []Block
	var heading, language string
	fenced := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence:
			fenced, language = !fenced, fence
			if fenced && language == "sh" {
				blocks = append(blocks, Block{Heading: heading})
			}
		case !fenced && strings.HasPrefix(line, "## "):
			heading = strings.TrimPrefix(line, "## ")
		case fenced && len(blocks) > 0:
			b := &blocks[len(blocks)-1]
			if language != "sh" {
				b.Shown += line + "\n"
			} else if command := withoutComment(line); command != "" {
				b.Commands = append(b.Commands, command)
			}
		}
	}
	return blocks, nil
}

func withoutComment(line string) string {
	command, _, _ := strings.Cut(line, " # ")
	return strings.TrimSpace(command)
}

// Reader does what a page shows, and holds what comes of it against the page.
type Reader struct {
	// At is where volferryctl is called, Sockets is where it is called with --socket
	// and a path of the page's.
	At      Caller
	Sockets map[string]Caller
	// Others stand for the commands of the page that are not volferryctl's, by their
	// first word. They get the line with the names of here.
	Others map[string]func(ctx context.Context, line string) error
	// Names are pairs: what the page calls something, and what it is here.
	Names []string
}

// Do runs the commands of a block. The error says what was not as the page has it: a
// command that fails, unless the page shows its exit status with "; echo $?", and
// what is printed. Ids, times and indentation may be others.
func (r *Reader) Do(ctx context.Context, b Block) error {
	var printed strings.Builder
	for _, line := range b.Commands {
		out, err := r.run(ctx, line)
		if err != nil {
			return fmt.Errorf("section %q: %w", b.Heading, err)
		}
		printed.WriteString(out)
	}
	if want, got := comparable(b.Shown), comparable(r.asOnPage(printed.String())); b.Shown != "" && want != got {
		return fmt.Errorf("section %q: %s print\n%s\nand the page says\n%s", b.Heading, strings.Join(b.Commands, ", "), got, want)
	}
	return nil
}

// run runs a line and returns what the page shows of it.
func (r *Reader) run(ctx context.Context, line string) (string, error) {
	line, echo := strings.CutSuffix(line, "; echo $?")
	words := strings.Fields(strings.NewReplacer(r.Names...).Replace(line))
	if other := r.Others[words[0]]; other != nil {
		return "", other(ctx, strings.Join(words, " "))
	}
	at, args := r.At, words[1:]
	if args[0] == "--socket" {
		at, args = r.Sockets[args[1]], args[2:]
	}
	if words[0] != "volferryctl" || at.Socket == "" {
		return "", fmt.Errorf("nothing is known of the command: %s", line)
	}
	out, err := at.Ctl(ctx, args...)
	var failed *CtlError
	if echo && errors.As(err, &failed) {
		return fmt.Sprintf("%s%d\n", failed.Stderr, failed.Exit), nil
	}
	return out, err
}

// asOnPage gives things the page's names.
func (r *Reader) asOnPage(text string) string {
	pairs := make([]string, 0, len(r.Names))
	for i := 0; i < len(r.Names); i += 2 {
		pairs = append(pairs, r.Names[i+1], r.Names[i])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

var (
	anyID   = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	anyTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
)

// comparable is a text without what is another each time.
func comparable(text string) string {
	text = anyTime.ReplaceAllString(anyID.ReplaceAllString(text, "ID"), "TIME")
	var lines []string
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 {
			lines = append(lines, strings.Join(words, " "))
		}
	}
	return strings.Join(lines, "\n")
}
