// SPDX-License-Identifier: Apache-2.0

package api

import (
	"regexp"
	"strings"
)

// plainWord is what a shell takes as it is.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// ShellLine writes words as a shell reads them.
func ShellLine(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = w
		if !plainWord.MatchString(w) {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// AttachLine is the command that attaches a volume to an instance, at a device or as its root, whose device is known.
func AttachLine(volume, instance, device string, root bool, mode Mode) string {
	words := []string{"volferryctl", "volume", "attach", volume, instance}
	if root {
		words = append(words, "--root")
	} else {
		words = append(words, "--device", device)
	}
	if mode == ModeRO {
		words = append(words, "--mode", string(mode))
	}
	return ShellLine(words...)
}

// DefineAgain is how an operator gives a guest that runs the definition back that somebody has
// taken away.
func DefineAgain(instance string) string {
	file := "./" + instance + ".xml"
	return "`" + ShellLine("virsh", "dumpxml", "--security-info", instance) + " > " + ShellLine(file) + "`, then `" + ShellLine("virsh", "define", file) + "`"
}
