// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// usageError is a command line that cannot be carried out as it is written.
// Nothing was sent.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}

// what says what the placeholders in a command's ArgsUsage stand for.
var what = map[string]string{
	"HOST":           "the name or id of a host",
	"POOL":           "the name of a pool",
	"TYPE":           "the name or id of a volume type",
	"VOLUME":         "the name or id of a volume",
	"INSTANCE":       "the name or id of an instance",
	"DOMAIN":         "the name or UUID of a libvirt domain",
	"ATTACHMENT":     "the id of an attachment",
	"DST_ATTACHMENT": "the id of the attachment that 'migration start' made",
	"MIGRATION":      "the id of a migration",
	"OP":             "the id of an operation, as --no-wait prints it",
	"DRAIN":          "the id of a drain, from 'pool drain' or 'drain list'",
	"ON_OR_OFF":      "on or off",
	"POLICY":         "the name of a policy: multiattach or multiattach_bootable",
	"NAME":           "a name",
	"SHELL":          "bash, zsh or fish",
}

// checkArguments holds the number of arguments against the placeholders in
// the command's ArgsUsage; those in brackets may be
// missing, and dots take any number.
func checkArguments(c *cli.Context) error {
	places := strings.Fields(c.Command.ArgsUsage)
	given := c.Args().Slice()
	if strings.HasSuffix(c.Command.ArgsUsage, "...]") {
		return nil
	}
	for i, place := range places {
		name := strings.Trim(place, "[]")
		switch {
		case i < len(given) && given[i] == "":
			return usagef("%s%s is empty: give %s", prefix(c), name, what[name])
		case i >= len(given) && name == place:
			return usagef("%s%s is missing: give %s", prefix(c), name, what[name])
		}
	}
	if len(given) > len(places) {
		return tooMany(c, given[len(places)])
	}
	return nil
}

// tooMany speaks of the first argument that has no place. "--bootable false"
// is the usual way to write one.
func tooMany(c *cli.Context, extra string) error {
	if extra == "true" || extra == "false" {
		return usagef("%sone argument too many: %q; a flag and its truth are one word, as in --bootable=%s", prefix(c), extra, extra)
	}
	return usagef("%sone argument too many: %q", prefix(c), extra)
}

// orList is "a, b or c".
func orList(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
