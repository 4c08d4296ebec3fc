// SPDX-License-Identifier: Apache-2.0

package routes

import "github.com/volferry/volferry/internal/httpjson"

// Elsewhere returns the declared calls that a program does not serve, each with refusal as its
// answer. Here reports whether the program serves a route.
func Elsewhere(here func(*Declaration) bool, refusal error) []httpjson.Elsewhere {
	served := map[string]bool{}
	for _, d := range all {
		served[d.String()] = served[d.String()] || here(d)
	}
	var out []httpjson.Elsewhere
	for _, d := range all {
		if !served[d.String()] {
			out = append(out, httpjson.Elsewhere{Method: d.Method, Path: d.Path, Err: refusal})
		}
	}
	return out
}
