// SPDX-License-Identifier: Apache-2.0

package api

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// ShellLine quotes the words of a command for a shell. A word "--" ends the options; it is left
// out unless a later word looks like an option: `virsh destroy --domain=web1` ends web1, and a
// domain may have that name.
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

// AttachLine returns the command that attaches a volume to an instance, at a device or as its root.
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

// ExtendLine returns the command that extends a logical volume of LVM.
func ExtendLine(device string, sizeBytes int64) string {
	return ShellLine("lvextend", "--size", strconv.FormatInt(sizeBytes, 10)+"b", "--", device)
}

// DefineAgain returns the commands that restore the deleted definition of a running guest.
func DefineAgain(instance string) string {
	file := "./" + instance + ".xml"
	return "`" + ShellLine("virsh", "dumpxml", "--security-info", "--", instance) + " > " + ShellLine(file) + "`, then `" + ShellLine("virsh", "define", "--", file) + "`"
}
