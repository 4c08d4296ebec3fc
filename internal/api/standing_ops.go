// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"fmt"
	"strings"
)

// Standing reports whether an op waits for an operator and belongs to no migration. CheckMoves
// reports migrations.
func (o *Op) Standing() bool { return o.State == OpNeedsOperator && o.MigrationID == "" }

// WayOut returns the commands or the advice that end an op that needs an operator.
func (o *Op) WayOut() string {
	return cmp.Or(o.Next, "mend what the error says, then give the command again that began it (docs/how-to/recover.md)")
}

// CountStanding counts the Standing ops.
func CountStanding(open []Op) (n int) {
	for i := range open {
		if open[i].Standing() {
			n++
		}
	}
	return n
}

// CheckOps returns the check for Standing ops, with the WayOut of each.
func CheckOps(open []Op) Check {
	check := Check{Name: "operations", Status: "ok", Message: "none waits for an operator"}
	var lines, advice []string
	for i := range open {
		o := &open[i]
		if !o.Standing() {
			continue
		}
		line := fmt.Sprintf("operation %s (%s) waits for an operator", o.ID, strings.TrimSuffix(o.Kind+", "+o.Subject, ", "))
		if o.Error != nil {
			line += ": " + strings.Join(strings.Fields(o.Error.Message), " ")
		}
		lines = append(lines, line)
		advice = append(advice, o.ID+": "+o.WayOut())
	}
	if len(lines) > 0 {
		check.Status, check.Message, check.Advice = "fail", strings.Join(lines, "; "), strings.Join(advice, "\n")
	}
	return check
}
