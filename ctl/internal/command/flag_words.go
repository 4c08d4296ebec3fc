// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/session"
)

// flagWords are the values of those flags that have a few words as values, and the shells.
var flagWords = map[string][]string{
	"output":           {"table", "json"},
	"progress":         {session.ProgressAuto, session.ProgressPlain, session.ProgressJSON, session.ProgressNone},
	"format":           {"raw", "qcow2"},
	"to-format":        {"raw", "qcow2"},
	"method":           {"auto", "overlay", "mirror"},
	"verify":           {"full", "none"},
	"shell":            {"bash", "zsh", "fish"},
	"mode":             {"rw", "ro"},
	"keep":             {"src", "dst"},
	"migration-policy": {"never", "on-demand"},
}

// switchWords are the two values of a policy.
var switchWords = []string{onOff(true), onOff(false)}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// checkWord is the action of a flag whose value is one of a few words.
func checkWord(flag string) func(*cli.Context, string) error {
	return func(_ *cli.Context, got string) error {
		if err := checkOneOf(flagWords[flag], got); err != nil {
			return usagef("--%s: %w", flag, err)
		}
		return nil
	}
}

// checkOneOf returns an error if got is none of the words.
func checkOneOf(words []string, got string) error {
	if slices.Contains(words, got) {
		return nil
	}
	return fmt.Errorf("%q is unknown: give %s", got, orList(words))
}
