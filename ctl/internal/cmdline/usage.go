// SPDX-License-Identifier: Apache-2.0

// Package cmdline reads command lines: flags anywhere, arguments and their placeholders, misspelt
// words, sizes. It also has the help templates.
package cmdline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/session"
)

// UsageError reports a wrong command line. Nothing was sent.
type UsageError struct{ err error }

func (e *UsageError) Error() string { return e.err.Error() }
func (e *UsageError) Unwrap() error { return e.err }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{err: fmt.Errorf(format, args...)}
}

// PlaceholderHelp describes the placeholders in the commands' ArgsUsage.
var PlaceholderHelp = map[string]string{
	"HOST":           "the name or id of a host",
	"POOL":           "the name of a pool",
	"TYPE":           "the name or id of a volume type",
	"VOLUME":         "the name or id of a volume",
	"INSTANCE":       "the name or id of an instance",
	"DOMAIN":         "the name or UUID of a libvirt domain",
	"ATTACHMENT":     "the id of an attachment",
	"DST_ATTACHMENT": "the id of the attachment that 'migration start' made",
	"MIGRATION":      "the id of a migration",
	"MOVE":           "the name of a volume that moves, the id of its migration, or of the attachment that it was started on",
	"OP":             "the id of an operation, as --no-wait prints it",
	"DRAIN":          "the id of a drain, from 'pool drain' or 'drain list'",
	"ON_OR_OFF":      "on or off",
	"POLICY":         "the name of a policy: multiattach or multiattach_bootable",
	"NAME":           "a name",
	"SHELL":          "bash, zsh or fish",
}

// CheckArguments compares the arguments with the placeholders in ArgsUsage: brackets mark an
// optional argument, dots permit any number.
func CheckArguments(c *cli.Context) error {
	places := strings.Fields(c.Command.ArgsUsage)
	given := c.Args().Slice()
	if strings.HasSuffix(c.Command.ArgsUsage, "...]") {
		return nil
	}
	for i, place := range places {
		name := strings.Trim(place, "[]")
		switch {
		case i < len(given) && given[i] == "":
			return Usagef("%s%s is empty: give %s", Prefix(c), name, PlaceholderHelp[name])
		case i >= len(given) && name == place:
			return Usagef("%s%s is missing: give %s", Prefix(c), name, PlaceholderHelp[name])
		}
	}
	if len(given) > len(places) {
		return tooManyArguments(c, given[len(places)])
	}
	return nil
}

// tooManyArguments returns the error for an extra argument. A frequent cause is "--bootable
// false".
func tooManyArguments(c *cli.Context, extra string) error {
	if extra == "true" || extra == "false" {
		return Usagef("%sone argument too many: %q; a flag and its value are one word, as in --bootable=%s", Prefix(c), extra, extra)
	}
	for _, to := range []string{"to-pool", "to"} {
		if slices.ContainsFunc(c.Command.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), to) }) && !c.IsSet(to) {
			return Usagef("%sone argument too many: %q; a destination is given as --%s %s", Prefix(c), extra, to, extra)
		}
	}
	return Usagef("%sone argument too many: %q", Prefix(c), extra)
}

// OrList returns "a, b or c".
func OrList(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Prefix returns the command without the program's name, to begin an error: "volume show: ".
func Prefix(c *cli.Context) string {
	if name := c.Command.HelpName; len(name) > len(session.Program) {
		return name[len(session.Program)+1:] + ": "
	}
	return ""
}
