// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/session"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/version"
)

var appHelp = fmt.Sprintf(`Start with 'volferryctl status' and 'volferryctl doctor'. To put the disks of a guest
that exists already under the control of Volferry, and to move one of them while it runs:

   volferryctl instance adopt web1
   volferryctl volume list
   volferryctl volume migrate web1-vda --to-pool fast

Things are named by name, by id, or by the unique beginning of an id, %d characters of it
at least. Flags may stand before or after the names. Results go to stdout, talk to stderr.

Commands wait for work that takes long. Ctrl-C ends the waiting, never the work, and prints
how to follow the work and how to cancel it; the exit status is 130 then. A second Ctrl-C
ends volferryctl at once.

With -o json stdout gets one object, {"schema_version":1,"<noun>":{...}}, and an error is
one line on stderr, {"error":{"code":...,"message":...}}.

Exit status: 0 done, 1 internal error, 2 wrong usage, 3 not found, 4 refused,
5 daemon, registry or libvirt unavailable, 6 the operation ended in error,
7 it needs an operator, 130 you stopped waiting.`, api.MinIDPrefix)

// newApp builds the command tree.
func newApp(stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:            session.Program,
		Usage:           "move the data of volumes, also while their guests run",
		UsageText:       session.Program + " [GLOBAL FLAGS] NOUN VERB [ARGUMENTS] [FLAGS]",
		Description:     appHelp,
		Version:         version.String(),
		Flags:           globalFlags(),
		HideHelpCommand: true,
		Writer:          stdout,
		ErrWriter:       stderr,
		// Main reports errors, once.
		ExitErrHandler:            func(*cli.Context, error) {},
		CustomAppHelpTemplate:     cmdline.AppHelp,
		DisableSliceFlagSeparator: true,
		Commands: []*cli.Command{
			statusCommand(), doctorCommand(),
			hostCommand(), poolCommand(), drainCommand(), typeCommand(), policyCommand(),
			volumeCommand(), attachmentCommand(), instanceCommand(), migrationCommand(),
			opCommand(), eventsCommand(), webCommand(), versionCommand(), completionCommand(), completeCommand(),
		},
	}
	app.Action = missingVerb
	app.OnUsageError = wrongFlag
	for _, c := range app.Commands {
		finish(c)
	}
	return app
}

func finish(c *cli.Command) {
	c.HideHelpCommand = true
	c.OnUsageError = wrongFlag
	for _, f := range c.Flags {
		if b, ok := f.(*cli.BoolFlag); ok {
			b.DisableDefaultText = true
		}
	}
	if len(c.Subcommands) == 0 {
		c.CustomHelpTemplate = cmdline.CommandHelp
		c.Before = cmdline.CheckArguments
		return
	}
	c.CustomHelpTemplate = cmdline.NounHelp
	c.Action = missingVerb
	for _, sub := range c.Subcommands {
		finish(sub)
	}
}

func globalFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name: "socket", EnvVars: []string{"VOLFERRY_SOCKET"}, DefaultText: "the daemon's, else the registry's, in /run/volferry",
			Usage: "talk to the daemon or registry at Unix socket `PATH`, or to a registry at https://HOST[:PORT], or at one of several such URLs with commas between them",
		},
		&cli.StringFlag{Name: "ca", EnvVars: []string{"VOLFERRY_CA"}, Usage: "for https: `FILE` has the certificate of the registry's authority"},
		&cli.StringFlag{Name: "cert", EnvVars: []string{"VOLFERRY_CERT"}, Usage: "for https: `FILE` has your operator certificate"},
		&cli.StringFlag{Name: "key", EnvVars: []string{"VOLFERRY_KEY"}, Usage: "for https: `FILE` has the key of that certificate"},
		&cli.StringFlag{
			Name: "output", Aliases: []string{"o"}, Value: "table", DefaultText: "table",
			Usage:  "print results as `FORMAT`: table or json",
			Action: cmdline.CheckWord("output"),
		},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, DisableDefaultText: true, Usage: "print ids only, and no progress"},
		&cli.BoolFlag{Name: "no-wait", DisableDefaultText: true, Usage: "do not wait for work that takes long: print its id and return"},
		&cli.StringFlag{
			Name: "progress", Value: session.ProgressAuto, DefaultText: session.ProgressAuto,
			Usage:  "`KIND`: auto (a bar on a terminal, else lines), plain, json (NDJSON on stdout) or none",
			Action: cmdline.CheckWord("progress"),
		},
	}
}

// missingVerb is the action of the program and of a noun, if the next word is unknown or missing.
func missingVerb(c *cli.Context) error {
	word := c.Args().First()
	if word == "" {
		c.App.Writer = c.App.ErrWriter
		if err := cli.ShowSubcommandHelp(c); err != nil {
			return fmt.Errorf("show help: %w", err)
		}
		return cmdline.Usagef("%sa command is missing: give one of those above", cmdline.Prefix(c))
	}
	if word == "help" {
		return cmdline.Usagef("%sunknown command %q: it stands first, as in '%s help volume migrate', or give --help", cmdline.Prefix(c), word, session.Program)
	}
	unknown := fmt.Sprintf("%sunknown command %q", cmdline.Prefix(c), word)
	nouns := nounsOf(c.Command.Subcommands, word)
	near := cmdline.Nearest(c.Command.Subcommands, word)
	switch {
	case len(nouns) > maxSuggested:
		unknown += fmt.Sprintf(". It needs a noun before it: %s", cmdline.OrList(nouns))
	case len(nouns) > 0:
		for i, noun := range nouns {
			nouns[i] = fmt.Sprintf("%q", noun+" "+word)
		}
		unknown += fmt.Sprintf(". Did you mean %s?", cmdline.OrList(nouns))
	case near != "":
		unknown += fmt.Sprintf(". Did you mean %q?", near)
	}
	return cmdline.Usagef("%s", unknown) // report adds where to find the commands
}

const maxSuggested = 3

func nounsOf(nouns []*cli.Command, word string) (out []string) {
	for _, noun := range nouns {
		for _, verb := range noun.Subcommands {
			if !noun.Hidden && !verb.Hidden && verb.Name == word {
				out = append(out, noun.Name)
			}
		}
	}
	return out
}

func wrongFlag(c *cli.Context, err error, _ bool) error {
	if name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); ok {
		unknown := fmt.Sprintf("%sunknown flag %s", cmdline.Prefix(c), flagSpelling(name))
		if near := cmdline.NearestFlag(c.Command.Flags, strings.TrimLeft(name, "-")); near != "" {
			unknown += fmt.Sprintf(". Did you mean --%s?", near)
		}
		return cmdline.Usagef("%s", unknown)
	}
	if name, ok := strings.CutPrefix(err.Error(), "flag needs an argument: -"); ok {
		return cmdline.Usagef("%s%s needs a value", cmdline.Prefix(c), flagSpelling(name))
	}
	if value, name, ok := strings.Cut(err.Error(), " for flag -"); ok && strings.HasPrefix(value, "invalid value ") {
		name, _, _ = strings.Cut(name, ": ")
		return cmdline.Usagef("%s%s: %s is not a value for it%s", cmdline.Prefix(c), flagSpelling(name), strings.TrimPrefix(value, "invalid value "), valueOf(c, name))
	}
	if value, name, ok := strings.Cut(strings.TrimPrefix(err.Error(), "invalid boolean value "), " for -"); ok && value != err.Error() {
		name, _, _ = strings.Cut(name, ": ")
		return cmdline.Usagef("%s%s takes no value, and %s is one", cmdline.Prefix(c), flagSpelling(name), value)
	}
	return cmdline.Usagef("%s%w", cmdline.Prefix(c), err)
}

func valueOf(c *cli.Context, name string) string {
	for _, f := range c.Command.Flags {
		if !slices.Contains(f.Names(), strings.TrimLeft(name, "-")) {
			continue
		}
		switch f.(type) {
		case *cli.IntFlag, *cli.Int64Flag, *cli.UintFlag, *cli.Uint64Flag:
			return "; it takes a whole number"
		case *cli.DurationFlag:
			return "; it takes a time such as 30s or 5m"
		}
	}
	return ""
}

func flagSpelling(name string) string {
	if name = strings.TrimLeft(name, "-"); len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}
