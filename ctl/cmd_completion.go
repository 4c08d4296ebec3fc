// SPDX-License-Identifier: Apache-2.0

package main

import (
	"embed"
	"fmt"

	"github.com/urfave/cli/v2"
)

//go:embed completion
var completionScripts embed.FS

func completionCommand() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print the completion script of a shell",
		ArgsUsage: "SHELL",
		UsageText: programName + " completion bash|zsh|fish",
		Description: "bash:  source <(" + programName + " completion bash)\n" +
			"zsh:   " + programName + " completion zsh > \"${fpath[1]}/_" + programName + "\"\n" +
			"fish:  " + programName + " completion fish > ~/.config/fish/completions/" + programName + ".fish\n\n" +
			"Names of volumes, pools and the like are completed, too, while the daemon runs.",
		Action: func(c *cli.Context) error {
			shell := c.Args().First()
			if err := oneWord(flagWords["shell"], shell); err != nil {
				return usagef("completion: %w", err)
			}
			script, err := completionScripts.ReadFile("completion/" + programName + "." + shell)
			if err != nil {
				return fmt.Errorf("read the script for %s: %w", shell, err)
			}
			_, err = c.App.Writer.Write(script)
			return err
		},
	}
}

// completeCommand is what the scripts call: it prints, one per line, what the
// last of the words given could become.
func completeCommand() *cli.Command {
	return &cli.Command{
		Name:      "__complete",
		Usage:     "print what the last word could become",
		ArgsUsage: "[WORD...]",
		Hidden:    true,
		Action: withSession(func(c *cli.Context, s *session) error {
			return s.printLines(candidates(c.Context, s, c.App, c.Args().Slice())...)
		}),
	}
}
