// SPDX-License-Identifier: Apache-2.0

package api

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// plainWord is what a shell takes as it is.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// ShellLine writes the words of a command as a shell reads them. A word "--" says that no option
// comes after it. It is printed only where a later word would be taken for one: `virsh destroy
// --domain=web1` ends web1, and a domain may be called so.
func ShellLine(words ...string) string {
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

// AttachLine is the command that attaches a volume to an instance, at a device or as its root,
// whose device is known.
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

// ExtendLine is the command that makes a logical volume of LVM as large as this.
func ExtendLine(device string, sizeBytes int64) string {
	return ShellLine("lvextend", "--size", strconv.FormatInt(sizeBytes, 10)+"b", "--", device)
}

// DefineAgain is how an operator gives a guest that runs the definition back that somebody has
// taken away.
func DefineAgain(instance string) string {
	file := "./" + instance + ".xml"
	return "`" + ShellLine("virsh", "dumpxml", "--security-info", "--", instance) + " > " + ShellLine(file) + "`, then `" + ShellLine("virsh", "define", "--", file) + "`"
}
