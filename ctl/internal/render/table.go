// SPDX-License-Identifier: Apache-2.0

package render

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	columnGap = 2
	shortID   = 8
	minColumn = 8
)

var uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// Table has rows under an upper-case header, one line each.
type Table struct {
	Header []string
	Rows   [][]string
}

// Add appends a row; an empty cell is written as "-".
func (t *Table) Add(cells ...string) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = OrDash(c)
	}
	t.Rows = append(t.Rows, row)
}

// Write writes the table to fit the width; 0 is no limit (a pipe). It shortens the ids of each
// column to the shortest distinct length, then cuts the widest cells. shortened reports whether it
// shortened ids.
func (t *Table) Write(w io.Writer, width int) (shortened bool, err error) {
	rows := make([][]string, 0, len(t.Rows)+1)
	rows = append(rows, slices.Clone(t.Header))
	for _, r := range t.Rows {
		row := slices.Clone(r)
		for i := range row {
			row[i] = Cell(row[i])
		}
		rows = append(rows, row)
	}
	if width > 0 && tableWidth(columnWidths(rows)) > width {
		shortened = shortenIDs(rows)
		cutCells(rows, width)
	}
	_, err = io.WriteString(w, layOut(rows))
	return shortened, err
}

func layOut(rows [][]string) string {
	var b strings.Builder
	widths := columnWidths(rows)
	for _, r := range rows {
		b.WriteString(widths.Line(r))
		b.WriteByte('\n')
	}
	return b.String()
}

// Widths are a table's column widths in characters. A cell may be wider.
type Widths []int

// Line returns a row with each cell padded to the width of its column.
func (w Widths) Line(row []string) string {
	var line strings.Builder
	for i, c := range row {
		line.WriteString(c)
		line.WriteString(strings.Repeat(" ", max(0, w[i]-utf8.RuneCountInString(c))+columnGap))
	}
	return strings.TrimRight(line.String(), " ")
}

func columnWidths(rows [][]string) Widths {
	widths := make(Widths, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	return widths
}

func tableWidth(widths []int) int {
	sum := columnGap * (len(widths) - 1)
	for _, w := range widths {
		sum += w
	}
	return sum
}

func shortenIDs(rows [][]string) (shortened bool) {
	for col := range rows[0] {
		ids := map[string]bool{}
		for _, r := range rows[1:] {
			if uuidPattern.MatchString(r[col]) {
				ids[r[col]] = true
			}
		}
		n := distinctPrefix(ids)
		for _, r := range rows[1:] {
			if ids[r[col]] && n < len(r[col]) {
				r[col] = r[col][:n]
				shortened = true
			}
		}
	}
	return shortened
}

func distinctPrefix(ids map[string]bool) int {
	for n := shortID; ; n++ {
		seen := map[string]bool{}
		for id := range ids {
			seen[id[:min(n, len(id))]] = true
		}
		if len(seen) == len(ids) {
			return n
		}
	}
}

// cutCells shortens the widest column until the table fits or all have their least width. A path
// loses its beginning, other cells their end.
func cutCells(rows [][]string, width int) {
	widths := columnWidths(rows)
	for tableWidth(widths) > width {
		widest := 0
		for i, w := range widths {
			if w > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= minColumn {
			break
		}
		widths[widest]--
	}
	for _, r := range rows {
		for i, c := range r {
			r[i] = cut(c, widths[i])
		}
	}
}

func cut(s string, width int) string {
	runes := []rune(s)
	switch {
	case len(runes) <= width:
		return s
	case strings.Contains(s, "/"):
		return "…" + string(runes[len(runes)-width+1:])
	default:
		return string(runes[:width-1]) + "…"
	}
}
