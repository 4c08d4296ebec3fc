// SPDX-License-Identifier: Apache-2.0

package api

import "strconv"

// Count formats a number with its noun: "1 volume", "2 volumes". The plural of thing has to end in
// s.
func Count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return strconv.Itoa(n) + " " + thing
}
