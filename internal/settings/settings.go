// SPDX-License-Identifier: Apache-2.0

// Package settings is how both daemons are configured: a TOML file, and flags
// that win over it. It knows nothing of what the settings mean.
package settings

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// Program is what is configured.
type Program struct {
	Name string
	// Usage is printed before the flags by --help.
	Usage string
	// File is where the configuration is unless --config says otherwise; it may
	// be absent then.
	File   string
	Stderr io.Writer
}

// Load returns the defaults, overlaid with the file and then with the flags in args, and what is
// left of args; a UsageError if the flags are wrong. The keys of the file are C's toml tags; one
// that C does not have is an error. Flags declares the flags that set the fields of a C.
// flag.ErrHelp after --help has been answered.
func Load[C any](p Program, args []string, defaults func() *C, flags func(*C, *flag.FlagSet)) (cfg *C, rest []string, err error) {
	file := p.File
	parse := func(c *C) (*flag.FlagSet, error) {
		set := flag.NewFlagSet(p.Name, flag.ContinueOnError)
		// An error is the caller's to print, once, and is not buried under the
		// list of all flags.
		set.SetOutput(io.Discard)
		set.StringVar(&file, "config", file, "configuration `file` (TOML); the default may be absent")
		flags(c, set)
		err := ParseFlags(set, args)
		if errors.Is(err, flag.ErrHelp) {
			set.SetOutput(p.Stderr)
			fmt.Fprint(p.Stderr, p.Usage)
			PrintFlags(set)
		} else if err != nil {
			err = Usagef("%w (see %s --help)", err, p.Name)
		}
		return set, err
	}
	given, err := parse(defaults())
	if err != nil {
		return nil, nil, err
	}
	named := false
	given.Visit(func(f *flag.Flag) { named = named || f.Name == "config" })
	cfg = defaults()
	if err := readFile(file, named, cfg); err != nil {
		return nil, nil, err
	}
	// The flags once more, onto what the file says.
	again, err := parse(cfg)
	if err != nil {
		return nil, nil, err
	}
	return cfg, again.Args(), nil
}

// PrintFlags writes what the flags of set are, to its output, as PrintDefaults does, with
// the two dashes with which the documentation writes them.
func PrintFlags(set *flag.FlagSet) {
	out := set.Output()
	var text strings.Builder
	set.SetOutput(&text)
	set.PrintDefaults()
	set.SetOutput(out)
	for line := range strings.Lines(text.String()) {
		if rest, isFlag := strings.CutPrefix(line, "  -"); isFlag {
			line = "  --" + rest
		}
		fmt.Fprint(out, line)
	}
}

// readFile reads the file into cfg. One that is named must exist.
func readFile(path string, named bool, cfg any) error {
	meta, err := toml.DecodeFile(path, cfg)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil
	}
	if err != nil {
		if said := wrongType.ReplaceAllStringFunc(err.Error(), sayType); said != err.Error() {
			err = errors.New(said)
		}
		return fmt.Errorf("read configuration %s: %w", path, err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return fmt.Errorf("read configuration %s: there is no key %s", path, unknown[0])
	}
	return nil
}

// wrongType is what the decoder says of a value of another type than its key has, in the words of
// Go.
var wrongType = regexp.MustCompile(`incompatible types: TOML value has type \S+; destination has type (\S+)`)

// sayType says it in the words of the file.
func sayType(text string) string {
	kind := wrongType.FindStringSubmatch(text)[1]
	said, known := map[string]string{
		"slice": `a list, as ["a", "b"]`, "map": `a table, as { a = "b" }`, "struct": `a table, as { a = "b" }`, "string": "a text in quotes", "integer": "a whole number", "boolean": "true or false",
	}[kind]
	if !known {
		return text
	}
	return "it has to be " + said
}

// CheckPath refuses a path that is not absolute and clean.
func CheckPath(name, path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return fmt.Errorf("%s is %q; it must be a clean absolute path", name, path)
	}
	return nil
}

// Listens reports whether an address of metrics_listen asks for a server.
func Listens(address string) bool { return address != "" && address != "off" }

// CheckListen refuses an address of metrics_listen that is none.
func CheckListen(name, address string) error {
	if !Listens(address) {
		return nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("%s is %q; it must be address:port, or off", name, address)
	}
	return nil
}

// GroupID resolves the group of socket_group; -1 for an empty name.
func GroupID(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return -1, fmt.Errorf("socket_group: %w", err)
	}
	return strconv.Atoi(g.Gid)
}
