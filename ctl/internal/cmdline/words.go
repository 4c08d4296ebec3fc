// SPDX-License-Identifier: Apache-2.0

package cmdline

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
)

// FlagWords are the permitted values of flags that accept only some words, and of the argument
// shell.
var FlagWords = map[string][]string{
	"output":           {"table", "json"},
	"progress":         {session.ProgressAuto, session.ProgressPlain, session.ProgressJSON, session.ProgressNone},
	"format":           {"raw", "qcow2"},
	"to-format":        {"raw", "qcow2"},
	"method":           {"auto", "overlay", "mirror"},
	"verify":           {"full", "none"},
	"pace":             {api.PaceOff, api.PaceGentle, api.PaceFull},
	"checkpoints":      {api.CheckpointsDrop},
	"allocation":       {api.AllocationKeep, api.AllocationThin, api.AllocationThick},
	"shell":            {"bash", "zsh", "fish"},
	"mode":             {"rw", "ro"},
	"keep":             {"src", "dst"},
	"migration-policy": {"never", "on-demand"},
}

// SwitchWords are the two values of a policy.
var SwitchWords = []string{OnOff(true), OnOff(false)}

// OnOff returns the value of a policy as a word.
func OnOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// CheckWord returns the action that checks a flag of FlagWords.
func CheckWord(flag string) func(*cli.Context, string) error {
	return func(_ *cli.Context, got string) error {
		if err := CheckOneOf(FlagWords[flag], got); err != nil {
			return Usagef("--%s: %w", flag, err)
		}
		return nil
	}
}

// CheckOneOf returns an error if got is none of the words.
func CheckOneOf(words []string, got string) error {
	if slices.Contains(words, got) {
		return nil
	}
	return fmt.Errorf("%q is unknown: give %s", got, OrList(words))
}
