// SPDX-License-Identifier: Apache-2.0

package humanize

import "strconv"

// Count formats a number with its noun, with a plural in s: "1 volume", "2 volumes".
func Count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return strconv.Itoa(n) + " " + thing
}
