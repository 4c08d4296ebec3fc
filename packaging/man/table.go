// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// cellEnd is a bar between two cells. One with a backslash belongs to a cell.
var cellEnd = regexp.MustCompile(`(?:^|[^\\])\|`)

// manyColumns is how many columns a table has whose cells are of equal rank: the first cell is
// defined by all others.
const manyColumns = 6

// withoutTables writes the tables of a page as lists of definitions, which a terminal
// of 80 columns has room for: the first cell is defined by the last one, and what is
// between them stands beside the first, after the word of its column.
func withoutTables(lines []string) []string {
	var out, header []string
	for i, line := range lines {
		switch {
		case !strings.HasPrefix(line, "|"):
			header = nil
			out = append(out, line)
		case header == nil:
			header = cells(line)
			if i > 0 && lines[i-1] != "" {
				out = append(out, "")
			}
		case strings.HasPrefix(line, "|-"), strings.HasPrefix(line, "|:"):
		default:
			out = append(out, definition(header, cells(line))...)
		}
	}
	return out
}

func definition(header, row []string) []string {
	if len(row) >= manyColumns {
		return []string{row[0], ":   " + strings.Join(named(header[1:], row[1:]), "; "), ""}
	}
	var beside []string
	for i := 1; i < len(row)-1; i++ {
		if row[i] != "" {
			beside = append(beside, strings.TrimSpace(header[i]+" "+row[i]))
		}
	}
	term, meaning := row[0], row[len(row)-1]
	switch more := strings.Join(beside, ", "); {
	case meaning == "":
		meaning = cmp.Or(more, "-")
	case more != "":
		term = fmt.Sprintf("%s (%s)", term, more)
	}
	return []string{term, ":   " + meaning, ""}
}

// cells are the cells of a line of a table.
func cells(line string) []string {
	line = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "|"), "|")
	var out []string
	for {
		at := cellEnd.FindStringIndex(line)
		if at == nil {
			break
		}
		out = append(out, clean(line[:at[1]-1]))
		line = line[at[1]:]
	}
	return append(out, clean(line))
}

func clean(cell string) string { return strings.ReplaceAll(strings.TrimSpace(cell), `\|`, "|") }

// named are the cells of a row, each after the word of its column.
func named(header, row []string) []string {
	var out []string
	for i := range row {
		if row[i] != "" {
			out = append(out, header[i]+": "+row[i])
		}
	}
	return out
}
