// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/volferry/volferry/ctl/internal/render"
)

// printList shows a collection: the document, the ids, or the table. An empty
// table is talk, so its one line goes to stderr.
func (s *session) printList(a answer, ids []string, t *render.Table, empty string) error {
	switch {
	case s.json:
		return render.JSON(s.stdout, a.members)
	case s.quiet:
		return s.printLines(ids...)
	case len(t.Rows) == 0:
		s.say("%s", empty)
		return nil
	}
	shortened, err := t.Write(s.stdout, terminalWidth(s.stdout))
	if shortened {
		s.say("Ids are shortened to fit; the beginning of an id is enough in every command.")
	}
	return err
}

// printRecord shows one thing.
func (s *session) printRecord(a answer, id string, r *render.Record) error {
	switch {
	case s.json:
		return render.JSON(s.stdout, a.members)
	case s.quiet:
		return s.printLines(id)
	}
	return r.Write(s.stdout)
}

// printResult says what a mutation did. With --progress json stdout belongs to
// the NDJSON of work that was waited for.
func (s *session) printResult(a answer, id string, lines ...string) error {
	switch {
	case s.progress == progressJSON && a.has("op"):
		return nil
	case s.json:
		return render.JSON(s.stdout, a.members)
	case s.quiet:
		return s.printLines(id)
	}
	return s.printLines(lines...)
}

func (s *session) printLines(lines ...string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(s.stdout, render.Text(line)); err != nil {
			return fmt.Errorf("write the result: %w", err)
		}
	}
	return nil
}

// terminalWidth is the width of the terminal that w is, 0 where it is none.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	// What is no terminal has no size.
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}
