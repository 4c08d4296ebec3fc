// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/volferry/volferry/ctl/internal/render"
)

// PrintList prints a collection as a document, as ids, or as a table. For an empty table it prints
// whenEmpty on stderr.
func (s *Session) PrintList(resp Response, ids []string, t *render.Table, whenEmpty string) error {
	switch {
	case s.JSON:
		return render.JSON(s.Stdout, resp.Members)
	case s.Quiet:
		return s.PrintLines(ids...)
	case len(t.Rows) == 0:
		s.Say("%s", whenEmpty)
		return nil
	}
	shortened, err := t.Write(s.Stdout, TerminalWidth(s.Stdout))
	if shortened {
		s.Say("Ids are shortened to fit; the beginning of an id is enough in every command.")
	}
	return err
}

// PrintRecord prints one object.
func (s *Session) PrintRecord(resp Response, id string, r *render.Record) error {
	switch {
	case s.JSON:
		return render.JSON(s.Stdout, resp.Members)
	case s.Quiet:
		return s.PrintLines(id)
	}
	return r.Write(s.Stdout)
}

// PrintResult prints the result of a change. With --progress json stdout has only the NDJSON of
// awaited work.
func (s *Session) PrintResult(resp Response, id string, lines ...string) error {
	switch {
	case s.Progress == ProgressJSON && resp.Has("op"):
		return nil
	case s.JSON:
		return render.JSON(s.Stdout, resp.Members)
	case s.Quiet:
		return s.PrintLines(id)
	}
	return s.PrintLines(lines...)
}

// PrintLines writes lines to stdout.
func (s *Session) PrintLines(lines ...string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(s.Stdout, render.Text(line)); err != nil {
			return fmt.Errorf("write the result: %w", err)
		}
	}
	return nil
}

// TerminalWidth returns the width of the terminal w, or 0 if w is none.
func TerminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}
