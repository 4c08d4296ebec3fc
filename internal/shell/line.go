// SPDX-License-Identifier: Apache-2.0

// Package shell writes commands that an operator can copy into a shell.
package shell

import (
	"regexp"
	"slices"
	"strings"
)

var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// Line returns a command with its words quoted for a shell. A word "--" ends the options. Line
// omits it unless a later word looks like an option: `virsh destroy --domain=web1`, for a domain
// of that name, would end web1.
func Line(words ...string) string {
	quoted := make([]string, 0, len(words))
	for i, w := range words {
		switch {
		case w == "--" && !slices.ContainsFunc(words[i+1:], looksLikeOption):
		case plainWord.MatchString(w):
			quoted = append(quoted, w)
		default:
			quoted = append(quoted, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
		}
	}
	return strings.Join(quoted, " ")
}

func looksLikeOption(word string) bool { return strings.HasPrefix(word, "-") }
