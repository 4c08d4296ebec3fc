// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"

	"github.com/volferry/volferry/internal/humanize"
)

// CheckChains returns the doctor's check for moving disks with images that another program has
// changed.
func CheckChains(problems []ChainProblem) Check {
	check := Check{Name: "chains", Status: "ok", Message: "no other program has changed a disk of an open migration"}
	var guarded, others, advice []string
	for _, p := range problems {
		if p.Guarded {
			guarded = append(guarded, p.Message)
		} else {
			others = append(others, p.Message)
		}
		if p.Cure != "" {
			advice = append(advice, p.Cure)
		}
	}
	var lines []string
	if len(guarded) > 0 {
		lines = append(lines, humanize.Count(len(guarded), "instance")+", kept from starting: "+strings.Join(guarded, "; "))
	}
	if len(others) > 0 {
		lines = append(lines, humanize.Count(len(others), "disk")+", changed by somebody else while it moves: "+strings.Join(others, "; "))
	}
	if len(lines) == 0 {
		return check
	}
	check.Status, check.Message = "fail", strings.Join(lines, "; ")
	check.Advice = strings.Join(append(advice, "volferryctl volume which says what is known of the volume; docs/how-to/recover.md"), "\n")
	return check
}

// ChainProblems returns the chain problems of migrations.
func ChainProblems(open []Migration) []ChainProblem {
	var out []ChainProblem
	for i := range open {
		if p := open[i].ChainProblem; p != nil {
			out = append(out, *p)
		}
	}
	return out
}
