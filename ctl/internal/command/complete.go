// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/session"
)

func completions(ctx context.Context, s *session.Session, app *cli.App, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	words, parted := withEqualsJoined(words)
	partial := words[len(words)-1]
	before := words[:len(words)-1]
	if flag, value, found := strings.Cut(partial, "="); found && cmdline.IsFlag(flag) {
		withFlag := slices.Concat(before, []string{flag})
		_, at := cmdline.Locate(app, before)
		if _, next := cmdline.Locate(app, withFlag); at.Flag == "" && next.Flag != "" {
			possible := completions(ctx, s, app, append(withFlag, value))
			for i := range possible {
				if !parted { // otherwise the shell keeps the part before the value
					possible[i] = flag + "=" + possible[i]
				}
			}
			return possible
		}
	}
	var possible []string
	switch command, at := cmdline.Locate(app, before); {
	case at.Flag != "":
		possible = append(possible, cmdline.FlagWords[at.Flag]...)
		if command != nil {
			if f, ok := cmdline.FindFlag(command.Flags, at.Flag).(statusFlag); ok {
				possible = append(possible, f.words...)
			}
		}
		possible = append(possible, collectionNames(ctx, s, flagCollections[at.Flag])...)
	case cmdline.IsFlag(partial) || partial == "-":
		possible = flagNames(app.Flags)
		if command != nil {
			possible = append(possible, flagNames(command.Flags)...)
		}
	case command == nil:
		possible = commandNames(app.Commands)
	case len(command.Subcommands) > 0:
		possible = commandNames(command.Subcommands)
	default:
		possible = argumentWords(ctx, s, command, at.Argument)
	}
	slices.Sort(possible)
	return slices.DeleteFunc(slices.Compact(possible), func(word string) bool { return !strings.HasPrefix(word, partial) })
}

// withEqualsJoined joins a flag, "=" and value that bash has split into three words. parted
// reports whether the last word was split.
func withEqualsJoined(words []string) (joined []string, parted bool) {
	awaits := false // the last joined word awaits its value
	for i, word := range words {
		last := len(joined) - 1
		equals := word == "=" && last >= 0 && !awaits && cmdline.IsFlag(joined[last]) && !strings.Contains(joined[last], "=")
		if !equals && !awaits {
			joined = append(joined, word)
			continue
		}
		joined[last] += word
		awaits, parted = equals, i == len(words)-1
	}
	return joined, parted
}

func argumentWords(ctx context.Context, s *session.Session, command *cli.Command, number int) []string {
	places := strings.Fields(command.ArgsUsage)
	if number >= len(places) {
		return nil
	}
	place := strings.Trim(places[number], "[]")
	switch place {
	case "SHELL":
		return slices.Clone(cmdline.FlagWords["shell"])
	case "ON_OR_OFF":
		return slices.Clone(cmdline.SwitchWords)
	}
	if command.Name == deleteSourceName {
		return completedReleased(ctx, s)
	}
	return collectionNames(ctx, s, argumentCollections[place])
}

func completedReleased(ctx context.Context, s *session.Session) []string {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	var ids []string
	for _, r := range listLeft(ctx, s, collectionNames(ctx, s, "hosts"), "").known {
		ids = append(ids, r.MigrationID)
	}
	return ids
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
