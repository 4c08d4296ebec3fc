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
// print; or what is to go into a file, or to be typed elsewhere.
type Block struct {
	Heading  string // of the section that it is in
	Language string // Shell if it is commands
	Commands []string
	Shown    string // what the commands print, empty where the page does not show it
	Text     string // as it is on the page
}

// Shell is the language of commands.
const Shell = "sh"

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
	return readBlocks(string(text)), nil
}

// readBlocks reads what is fenced. A fence without a language has what the commands
// right before it print.
func readBlocks(text string) []Block {
	var blocks []Block
	var heading, language, indent string
	fenced, prose := false, true
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		before, fence, isFence := strings.Cut(line, "```")
		switch {
		case isFence && strings.TrimSpace(before) == "":
			fenced, language, indent = !fenced, fence, before
			if fenced && language != "" {
				blocks, prose = append(blocks, Block{Heading: heading, Language: language}), false
			}
		case !fenced:
			prose = prose || strings.TrimSpace(line) != ""
			if h, ok := strings.CutPrefix(line, "## "); ok {
				heading = h
			}
		case !prose:
			blocks[len(blocks)-1].add(strings.TrimPrefix(line, indent), language == "")
		}
	}
	return blocks
}

// add adds a line to a block. A command may go over several lines.
func (b *Block) add(line string, shown bool) {
	if shown {
		b.Shown += line + "\n"
		return
	}
	b.Text += line + "\n"
	command := withoutComment(line)
	if b.Language != Shell || command == "" {
		return
	}
	if last := len(b.Commands) - 1; last >= 0 && strings.HasSuffix(b.Commands[last], continued) {
		b.Commands[last] = strings.TrimSuffix(b.Commands[last], continued) + command
		return
	}
	b.Commands = append(b.Commands, command)
}

// continued ends a line whose command goes on in the next one.
const continued = "\\"

func withoutComment(line string) string {
	command, _, _ := strings.Cut(" "+line, " # ")
	return strings.TrimSpace(command)
}

// Reader does what a page shows, and holds what comes of it against the page.
type Reader struct {
	// At is where volferryctl is called, Sockets is where it is called with --socket
	// and a path of the page's. They are not needed with Shell.
	At      Caller
	Sockets map[string]Caller
	// Shell runs commands as they are, in a shell, and returns both outputs.
	Shell func(ctx context.Context, line string) (stdout, stderr string, err error)
	// Others stand for commands of the page, by how they begin. They get the line with
	// the names of here.
	Others map[string]func(ctx context.Context, line string) error
	// Names are pairs: what the page calls something, and what it is here.
	Names []string
	// Words are what a reader puts into the place of a word.
	Words map[string]string
}

// Do runs the commands of a block. The error says what was not as the page has it: a
// command that fails, unless the page shows its exit status with "; echo $?" or a
// refusal, and what is printed. Ids, times, versions and indentation may be others.
func (r *Reader) Do(ctx context.Context, b Block) error {
	refused := strings.HasPrefix(b.Shown, refusal)
	var printed strings.Builder
	for _, line := range b.Commands {
		out, err := r.run(ctx, line, refused)
		if err != nil {
			return fmt.Errorf("section %q: %w", b.Heading, err)
		}
		if !strings.HasPrefix(line, installer) { // a page does not show what that prints
			printed.WriteString(out)
		}
	}
	if want, got := comparable(b.Shown), comparable(r.asOnPage(printed.String())); b.Shown != "" && want != got {
		return fmt.Errorf("section %q: %s print\n%s\nand the page says\n%s", b.Heading, strings.Join(b.Commands, ", "), got, want)
	}
	return nil
}

// installer begins a command that installs packages.
const installer = "apt "

// refusal begins what volferryctl says that does not do what it was asked for.
const refusal = "volferryctl: "

// run runs a line and returns what the page shows of it.
func (r *Reader) run(ctx context.Context, line string, refused bool) (string, error) {
	words := strings.Fields(strings.NewReplacer(r.Names...).Replace(line))
	for i, w := range words {
		if other, ok := r.Words[w]; ok {
			words[i] = other
		}
	}
	line = strings.Join(words, " ")
	if other := r.other(line); other != nil {
		return "", other(ctx, line)
	}
	if r.Shell == nil {
		return r.call(ctx, line, refused)
	}
	out, stderr, err := r.Shell(ctx, line)
	if refused {
		return stderr + out, nil
	}
	return out, err
}

// other is what stands for a command, if something does.
func (r *Reader) other(line string) func(context.Context, string) error {
	longest := ""
	for begins := range r.Others {
		if strings.HasPrefix(line+" ", begins+" ") && len(begins) > len(longest) {
			longest = begins
		}
	}
	return r.Others[longest]
}

// call calls volferryctl without a shell.
func (r *Reader) call(ctx context.Context, line string, refused bool) (string, error) {
	line, echo := strings.CutSuffix(line, "; echo $?")
	words := strings.Fields(line)
	at, args := r.At, words[1:]
	if args[0] == "--socket" {
		at, args = r.Sockets[args[1]], args[2:]
	}
	if words[0] != "volferryctl" || at.Socket == "" {
		return "", fmt.Errorf("nothing is known of the command: %s", line)
	}
	out, err := at.Ctl(ctx, args...)
	var failed *CtlError
	switch {
	case echo && errors.As(err, &failed):
		return fmt.Sprintf("%s%d\n", failed.Stderr, failed.Exit), nil
	case refused && errors.As(err, &failed):
		return failed.Stderr, nil
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

// What is another each time, and what it is called to be compared.
var changing = []struct {
	text *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "ID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`-[0-9a-f]{8}\b`), "-ID"},                     // in the names of images
	{regexp.MustCompile(`\b\d+\.\d+\.\d+((-dev)?\+\S+)?`), "VERSION"}, // a page names a release
	{regexp.MustCompile(`\b(\d+(\.\d+)?(h|m|s|ms|us|µs|ns))+\b`), "DURATION"},
}

// comparable is a text without what is another each time.
func comparable(text string) string {
	for _, c := range changing {
		text = c.text.ReplaceAllString(text, c.name)
	}
	var lines []string
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 {
			lines = append(lines, strings.Join(words, " "))
		}
	}
	return strings.Join(lines, "\n")
}
