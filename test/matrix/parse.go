// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	_ "embed" // the rows
	"fmt"
	"slices"
	"strings"
)

//go:embed rows.txt
var rows string

// Phases are the rows as the list has them.
func Phases() ([]Phase, error) { return parse(rows) }

// parse reads the list of rows.
func parse(text string) ([]Phase, error) {
	var phases []Phase
	seen := map[string]bool{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\n")
		var err error
		switch head, rest, _ := strings.Cut(line, " "); {
		case line == "" || strings.HasPrefix(line, "#"):
		case head == "phase":
			id, title, _ := strings.Cut(rest, " ")
			phases = append(phases, Phase{ID: id, Title: title})
		case len(phases) == 0:
			err = fmt.Errorf("%q is in no phase", line)
		case head != "":
			p := &phases[len(phases)-1]
			if seen[head] || !strings.HasPrefix(head, p.ID) {
				err = fmt.Errorf("row %s is there twice, or not of phase %s", head, p.ID)
			}
			seen[head] = true
			p.Rows = append(p.Rows, Row{ID: head, Fails: rest})
		default:
			err = phases[len(phases)-1].add(strings.TrimSpace(line))
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	for _, p := range phases {
		for _, r := range p.Rows {
			if err := r.check(); err != nil {
				return nil, err
			}
		}
	}
	return phases, nil
}

// add takes in an indented line, which is of the last row.
func (p *Phase) add(line string) error {
	if len(p.Rows) == 0 {
		return fmt.Errorf("%q is of no row", line)
	}
	r := &p.Rows[len(p.Rows)-1]
	key, value, _ := strings.Cut(line, ": ")
	texts := map[string]*string{"holds": &r.Holds, "lacks": &r.Lacks, "never": &r.Never}
	if text := texts[key]; text != nil {
		if *text != "" || value == "" {
			return fmt.Errorf("row %s says %s twice, or nothing with it", r.ID, key)
		}
		*text = value
		return nil
	}
	folder, name, ok := strings.Cut(value, " ")
	if !ok || !slices.Contains(ways, Made(key)) {
		return fmt.Errorf("row %s: %q is neither a text nor a test with its package", r.ID, line)
	}
	r.Tests = append(r.Tests, Test{Made: Made(key), Package: folder, Name: name})
	return nil
}
