// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// longestReason is how much of an error a table shows, in bytes. The raw results have all of it.
const longestReason = 400

// failures lists the moves of a group that failed, and why: an error that came again is listed
// once, with how often.
func failures(records []record, g group) string {
	type failure struct{ contender, reason string }
	var order []failure
	times := make(map[failure]int)
	for _, r := range records {
		if !g.has(r) || r.Error == "" {
			continue
		}
		reason := strings.Join(strings.Fields(r.Error), " ")
		if len(reason) > longestReason {
			reason = strings.ToValidUTF8(reason[:longestReason], "") + " …"
		}
		f := failure{r.Contender, reason}
		if times[f] == 0 {
			order = append(order, f)
		}
		times[f]++
	}
	var out strings.Builder
	for _, f := range order {
		fmt.Fprintf(&out, "\n%s failed, %d×: %s\n", f.contender, times[f], f.reason)
	}
	return out.String()
}
