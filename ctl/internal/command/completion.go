// SPDX-License-Identifier: Apache-2.0

package command

import (
	"embed"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/session"
)

//go:embed completion
var completionScripts embed.FS

func completionCommand() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print the completion script of a shell",
		ArgsUsage: "SHELL",
		UsageText: session.Program + " completion bash|zsh|fish",
		Description: "bash:  source <(" + session.Program + " completion bash)\n" +
			"zsh:   " + session.Program + " completion zsh > \"${fpath[1]}/_" + session.Program + "\"\n" +
			"fish:  " + session.Program + " completion fish > ~/.config/fish/completions/" + session.Program + ".fish\n\n" +
			"Names of volumes, pools and the like are completed too while the daemon runs.",
		Action: func(c *cli.Context) error {
			shell := c.Args().First()
			if err := cmdline.CheckOneOf(cmdline.FlagWords["shell"], shell); err != nil {
				return cmdline.Usagef("completion: %w", err)
			}
			script, err := completionScripts.ReadFile("completion/" + session.Program + "." + shell)
			if err != nil {
				return fmt.Errorf("read the script for %s: %w", shell, err)
			}
			_, err = c.App.Writer.Write(script)
			return err
		},
	}
}

func completeCommand() *cli.Command {
	return &cli.Command{
		Name:      "__complete",
		Usage:     "print what the last word could become",
		ArgsUsage: "[WORD...]",
		Hidden:    true,
		Action: withSession(func(c *cli.Context, s *session.Session) error {
			return s.PrintLines(completions(c.Context, s, c.App, c.Args().Slice())...)
		}),
	}
}
