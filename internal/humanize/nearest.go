// SPDX-License-Identifier: Apache-2.0

package humanize

import "strings"

// Nearest returns the name that word is probably a typo of, or "". Word is a prefix of the name,
// or differs by at most two letters and less than half of its length.
func Nearest(names []string, word string) string {
	best, near := "", 3
	for _, name := range names {
		d := distance(word, name)
		if len(word) > 1 && strings.HasPrefix(name, word) {
			d = 1
		}
		if d < near && 2*d < max(len(word), 3) {
			best, near = name, d
		}
	}
	return best
}

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
