// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// nearest is the name of the command that word is a slip of: the beginning of, or at
// most two letters away from and not by half of its letters; "" if there is none.
func nearest(commands []*cli.Command, word string) string {
	best, near := "", 3
	for _, c := range commands {
		if c.Hidden {
			continue
		}
		d := distance(word, c.Name)
		if len(word) > 1 && strings.HasPrefix(c.Name, word) {
			d = 1
		}
		if d < near && 2*d < max(len(word), 3) {
			best, near = c.Name, d
		}
	}
	return best
}

// distance is how many letters have to be put in, taken out, replaced or swapped with
// their neighbour to make b of a.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			differ := 1
			if a[i-1] == b[j-1] {
				differ = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+differ)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
