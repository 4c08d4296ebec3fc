// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// completionPatience bounds how long a Tab waits for the names of things.
const completionPatience = time.Second

// flagWords are the values of flags that have a few words as values, and the
// shells.
var flagWords = map[string][]string{
	"output":           {"table", "json"},
	"progress":         {progressAuto, progressPlain, progressJSON, progressNone},
	"format":           {"raw", "qcow2"},
	"to-format":        {"raw", "qcow2"},
	"method":           {"auto", "overlay", "mirror"},
	"verify":           {"full", "none"},
	"shell":            {"bash", "zsh", "fish"},
	"mode":             {"rw", "ro"},
	"keep":             {"src", "dst"},
	"migration-policy": {"never", "on-demand"},
}

// flagThings are the collections that the values of other flags name.
var flagThings = map[string]string{
	"pool": "pools", "to-pool": "pools", "to": "pools", "type": "types", "volume": "volumes", "instance": "instances",
	"host": "hosts",
}

// argumentThings are the collections that arguments name.
var argumentThings = map[string]string{
	"HOST": "hosts", "POOL": "pools", "TYPE": "types", "VOLUME": "volumes", "INSTANCE": "instances",
	"ATTACHMENT": "attachments", "DST_ATTACHMENT": "attachments", "MIGRATION": "migrations",
	"DRAIN": "drains", "POLICY": "policies", "OP": "ops",
}

// candidates are what the last word could become.
func candidates(ctx context.Context, s *session, app *cli.App, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	partial := words[len(words)-1]
	var possible []string
	switch command, at := locate(app, words[:len(words)-1]); {
	case at.flag != "":
		possible = append(possible, flagWords[at.flag]...)
		if command != nil {
			if f, ok := findFlag(command.Flags, at.flag).(statusFlag); ok {
				possible = append(possible, f.words...)
			}
		}
		possible = append(possible, things(ctx, s, flagThings[at.flag])...)
	case isFlag(partial) || partial == "-":
		possible = flagNames(app.Flags)
		if command != nil {
			possible = append(possible, flagNames(command.Flags)...)
		}
	case command == nil:
		possible = commandNames(app.Commands)
	case len(command.Subcommands) > 0:
		possible = commandNames(command.Subcommands)
	default:
		possible = argumentWords(ctx, s, command, at.argument)
	}
	slices.Sort(possible)
	return slices.DeleteFunc(slices.Compact(possible), func(word string) bool { return !strings.HasPrefix(word, partial) })
}

// position is where in a command line the next word would stand: it is the
// value of flag, or else the argument with that number.
type position struct {
	flag     string
	argument int
}

// locate reads the words before the one that is completed.
func locate(app *cli.App, words []string) (*cli.Command, position) {
	var (
		command *cli.Command
		at      position
	)
	level := app.Commands
	for _, word := range words {
		switch sub := find(level, word); {
		case at.flag != "":
			at.flag = ""
		case isFlag(word):
			at.flag = wantsValue(app, command, word)
		case sub != nil:
			command, level = sub, sub.Subcommands
		default:
			at.argument++
		}
	}
	return command, at
}

// wantsValue is the long name of the flag that word is, if its value is the
// next word.
func wantsValue(app *cli.App, command *cli.Command, word string) string {
	name, _, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
	flag := findFlag(app.Flags, name)
	if flag == nil && command != nil {
		flag = findFlag(command.Flags, name)
	}
	if doc, ok := flag.(cli.DocGenerationFlag); ok && doc.TakesValue() && !hasValue {
		return flag.Names()[0]
	}
	return ""
}

func argumentWords(ctx context.Context, s *session, command *cli.Command, number int) []string {
	places := strings.Fields(command.ArgsUsage)
	if number >= len(places) {
		return nil
	}
	place := strings.Trim(places[number], "[]")
	switch place {
	case "SHELL":
		return slices.Clone(flagWords["shell"])
	case "ON_OR_OFF":
		return slices.Clone(switchWords)
	}
	return things(ctx, s, argumentThings[place])
}

// things are the names of a collection, and the ids where things have no name.
func things(ctx context.Context, s *session, nouns string) []string {
	if nouns == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	all, _, err := list(ctx, s, collection(nouns))
	if err != nil {
		return nil
	}
	var out []string
	for _, thing := range all {
		if thing.Name != "" {
			out = append(out, thing.Name)
		} else {
			out = append(out, thing.ID)
		}
	}
	return out
}

func flagNames(flags []cli.Flag) []string {
	var out []string
	for _, f := range flags {
		for _, name := range f.Names() {
			if len(name) > 1 {
				out = append(out, "--"+name)
			}
		}
	}
	return out
}

func commandNames(commands []*cli.Command) []string {
	var out []string
	for _, c := range commands {
		if !c.Hidden {
			out = append(out, c.Name)
		}
	}
	return out
}
