// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// ReadPage takes in what a page says that Page has made.
func (all *Results) ReadPage(r io.Reader) error {
	var (
		end string
		to  []string
	)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if run, ok := strings.CutPrefix(line, "* "); ok {
			all.before.runs = append(all.before.runs, run)
		}
		if _, number, ok := strings.Cut(line, countHead); ok {
			n, err := strconv.Atoi(strings.TrimRight(strings.Fields(number)[0], ","))
			if err != nil {
				return fmt.Errorf("%q does not say how many moves there are: %w", line, err)
			}
			all.before.count += n
		}
		if title, ok := strings.CutPrefix(line, "## "); ok {
			i := slices.IndexFunc(parts, func(p part) bool { return p.title == title })
			if i < 0 {
				return fmt.Errorf("there is no part %q of the page", title)
			}
			end, to = parts[i].end, nil
		}
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		switch from := strings.TrimSpace(cells[0]); {
		case from == corner:
			to = cells[1:]
		case len(cells) != len(to)+1:
			return fmt.Errorf("%q is no row of a table with %d columns", line, len(to))
		default:
			for i, cell := range cells[1:] {
				for _, s := range states {
					if slices.Contains(strings.Fields(cell), s.letter) {
						all.before.moves = append(all.before.moves, Move{From: from, To: strings.TrimSpace(to[i]), Guest: s.guest, End: end})
					}
				}
			}
		}
	}
	return lines.Err()
}
