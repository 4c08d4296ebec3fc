// SPDX-License-Identifier: Apache-2.0

package cmdline

import (
	"cmp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/session"
)

// Arrange puts a command line, with flags anywhere, into the parser's order: global flags, noun
// and verb, the verb's flags, "--", arguments. It checks nothing. "help NOUN VERB" becomes "NOUN
// VERB --help".
func Arrange(app *cli.App, argv []string) []string {
	var a arrangement
	level := app.Commands
	rest := argv[1:]
	for len(rest) > 0 {
		word := rest[0]
		rest = rest[1:]
		switch {
		case word == "--":
			a.arguments = append(a.arguments, rest...)
			rest = nil
		case isHelp(word):
			a.help = true
		case IsFlag(word):
			rest = a.takeFlag(app, word, rest)
		case word == "help" && len(a.path) == 0 && !a.help:
			a.help = true
		case len(level) > 0 && findCommand(level, word) != nil:
			a.command = findCommand(level, word)
			a.path = append(a.path, word)
			level = a.command.Subcommands
		default:
			a.unknownWord = a.unknownWord || len(a.local) == 0
			a.arguments = append(a.arguments, word)
		}
	}
	return a.line(argv[0])
}

// TypedCommand returns the command that the words of a line name, such as "volferryctl volume
// show", or only the program's name.
func TypedCommand(app *cli.App, words []string) string {
	command, _ := Locate(app, words)
	if command == nil {
		return session.Program
	}
	return cmp.Or(command.HelpName, session.Program)
}

type arrangement struct {
	command   *cli.Command
	path      []string
	global    []string
	local     []string
	arguments []string
	help      bool
	// unknownWord means that a word that is neither a command nor a flag stood before the first
	// flag of a command.
	unknownWord bool
	// noValue means that the line ends with a flag that lacks its value.
	noValue bool
}

func (a *arrangement) takeFlag(app *cli.App, word string, rest []string) []string {
	name, _, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
	flag, to := FindFlag(app.Flags, name), &a.global
	if flag == nil {
		to = &a.local
		if a.command != nil {
			flag = FindFlag(a.command.Flags, name)
		}
	}
	*to = append(*to, word)
	doc, ok := flag.(cli.DocGenerationFlag)
	if !ok || !doc.TakesValue() || hasValue {
		return rest
	}
	if len(rest) == 0 {
		// The parser would take any following word for the flag's value.
		a.noValue = true
		if to == &a.global {
			a.path, a.local = nil, nil
		}
		return nil
	}
	*to = append(*to, rest[0])
	return rest[1:]
}

func (a *arrangement) line(program string) []string {
	out := slices.Concat([]string{program}, a.global, a.path, a.local)
	if a.noValue {
		return out
	}
	verb := a.command != nil && len(a.command.Subcommands) == 0
	if !verb && a.unknownWord {
		out = slices.Concat([]string{program}, a.global, a.path) // the unknown command, not its flags, is the mistake
	}
	switch {
	case a.help && (verb || len(a.arguments) == 0):
		return append(out, "--help")
	// Without a verb the other words are unknown commands, which have no help.
	case verb && len(a.arguments) > 0:
		out = append(out, "--")
	}
	return append(out, a.arguments...)
}

func isHelp(word string) bool { return word == "--help" || word == "-h" || word == "-help" }

// IsFlag reports whether a word has the form of a flag; "-" alone is no flag.
func IsFlag(word string) bool { return len(word) > 1 && word[0] == '-' }

func findCommand(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// FindFlag returns the flag with this name, or nil.
func FindFlag(flags []cli.Flag, name string) cli.Flag {
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

// WantsJSON reports whether an arranged command line, which may be wrong, asks for errors as JSON.
func WantsJSON(arranged []string) bool {
	for i, word := range arranged {
		switch word {
		case "--":
			return false
		case "-o", "--output", "-output", "--o":
			return i+1 < len(arranged) && arranged[i+1] == "json"
		case "-o=json", "--output=json", "-output=json", "--o=json":
			return true
		}
	}
	return false
}

// Position is the place of the next word in a command line: the value of Flag, if set, or argument
// number Argument.
type Position struct {
	Flag     string
	Argument int
}

// Locate returns the command and the position after the given words.
func Locate(app *cli.App, words []string) (*cli.Command, Position) {
	var (
		command *cli.Command
		at      Position
	)
	level := app.Commands
	for _, word := range words {
		switch sub := findCommand(level, word); {
		case at.Flag != "":
			at.Flag = ""
		case IsFlag(word):
			at.Flag = flagAwaitingValue(app, command, word)
		case sub != nil:
			command, level = sub, sub.Subcommands
		default:
			at.Argument++
		}
	}
	return command, at
}

func flagAwaitingValue(app *cli.App, command *cli.Command, word string) string {
	name, _, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
	flag := FindFlag(app.Flags, name)
	if flag == nil && command != nil {
		flag = FindFlag(command.Flags, name)
	}
	if doc, ok := flag.(cli.DocGenerationFlag); ok && doc.TakesValue() && !hasValue {
		return flag.Names()[0]
	}
	return ""
}
