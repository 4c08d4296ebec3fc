// SPDX-License-Identifier: Apache-2.0

package cmdline

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/internal/humanize"
)

var synonyms = map[string]string{"ls": "list", "get": "show", "info": "show", "describe": "show", "rm": "delete", "remove": "delete", "move": "migrate", "mv": "migrate"}

// NearestFlag returns the long name of the flag that the user probably means, or "". name may be
// its beginning or end, as "pool" of "to-pool", or similar (humanize.Nearest).
func NearestFlag(flags []cli.Flag, name string) string {
	var names []string
	for _, f := range flags {
		long := f.Names()[0]
		if strings.HasSuffix(long, "-"+name) || strings.HasPrefix(long, name+"-") {
			return long
		}
		names = append(names, long)
	}
	return humanize.Nearest(names, name)
}

// Nearest returns the name of the command that the user probably means, or "": the command that
// other programs call by this word (synonyms), or the most similar name (humanize.Nearest).
func Nearest(commands []*cli.Command, word string) string {
	if usual, ok := synonyms[word]; ok && slices.ContainsFunc(commands, func(c *cli.Command) bool { return c.Name == usual }) {
		return usual
	}
	var names []string
	for _, c := range commands {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return humanize.Nearest(names, word)
}
