// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/volferry/volferry/internal/settings"
	"github.com/volferry/volferry/registry/internal/server"
)

// A command is an action other than running the registry.
type command struct {
	name string
	args string // as in the help
	// summary is the line in the program's help; help is the rest of the command's own help.
	summary, help string
	// min and max bound the number of arguments; max -1 is no bound.
	min, max int
	// place is the flag for the command's file or directory.
	place string
	// flags defines the command's flags other than place and config.
	flags func(*flag.FlagSet, *options)
	run   func(context.Context, *invocation) error
}

type options struct {
	serverNames   []string
	id, out, role string
	days          int
	replace       bool
	evidence      string
	withoutProof  bool
}

type invocation struct {
	options
	cfg    *config
	args   []string
	stdout io.Writer
}

func (in *invocation) printf(format string, args ...any) { fmt.Fprintf(in.stdout, format, args...) }

// call parses arguments, before and after the flags, and runs the command.
func (c *command) call(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	in := &invocation{stdout: stdout}
	set := flag.NewFlagSet(c.name, flag.ContinueOnError)
	// The caller prints the error once.
	set.SetOutput(io.Discard)
	file := set.String("config", defaultConfigFile, "configuration `file` (TOML); the default may be absent")
	set.String(c.place, "", placeHelp[c.place])
	if c.flags != nil {
		c.flags(set, &in.options)
	}
	positional, err := parse(set, args)
	if errors.Is(err, flag.ErrHelp) {
		set.SetOutput(stderr)
		fmt.Fprintf(stderr, "%s %s %s - %s\n\n%s\nFlags:\n", server.Program, c.name, c.args, c.summary, c.help)
		settings.PrintFlags(set)
		return nil
	}
	if err != nil {
		return settings.Usagef("%w; see %s %s --help", err, server.Program, c.name)
	}
	if len(positional) < c.min {
		return settings.Usagef("give %s %s; see %s %s --help", c.name, c.args, server.Program, c.name)
	}
	if c.max >= 0 && len(positional) > c.max {
		return settings.Usagef("%q is more than %s takes; see %s %s --help", strings.Join(positional[c.max:], " "), c.name, server.Program, c.name)
	}
	in.args = positional
	if in.cfg, err = placed(set, *file); err != nil {
		return err
	}
	return c.run(ctx, in)
}

var placeHelp = map[string]string{
	"db":      "database `file`, an absolute path, instead of the configuration's",
	"tls-dir": "`directory` of the authority, an absolute path, instead of the configuration's",
	"ca-dir":  "`directory` of the authority's key, an absolute path, instead of the configuration's",
}

func placed(set *flag.FlagSet, file string) (*config, error) {
	var args []string
	set.Visit(func(f *flag.Flag) {
		if _, ok := placeHelp[f.Name]; ok {
			args = append(args, "--"+f.Name, f.Value.String())
		}
		if f.Name == "config" {
			args = append(args, "--config", file)
		}
	})
	loaded, err := loadConfig(args, "", io.Discard)
	if err != nil {
		return nil, err
	}
	cfg := loaded.Config
	if err := errors.Join(settings.CheckPath("tls_dir", cfg.TLSDir), cfg.checkCADir(), settings.CheckPath("db", cfg.DB)); err != nil {
		return nil, err
	}
	return cfg, nil
}

func parse(set *flag.FlagSet, args []string) (positional []string, err error) {
	for {
		if err := settings.ParseFlags(set, args); err != nil {
			return nil, err
		}
		if set.NArg() == 0 {
			return positional, nil
		}
		positional, args = append(positional, set.Arg(0)), set.Args()[1:]
	}
}
