// SPDX-License-Identifier: Apache-2.0

// Package settings loads the configuration of both daemons: a TOML file, and flags that override
// it.
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

// Program describes a program and its configuration file.
type Program struct {
	Name string
	// Usage is the text before the flags in --help.
	Usage string
	// File is the default of --config. The default file may be absent.
	File   string
	Stderr io.Writer
}

// Loaded is the result of Load.
type Loaded[C any] struct {
	Config *C
	// Rest are the arguments after the flags.
	Rest []string
	// NoFile is the path of the default file if it is absent, otherwise "".
	NoFile string
}

// Load reads the configuration. Flags in args override the file, and the file overrides the
// defaults. The keys of the file are C's toml tags; an unknown key is an error. The function flags
// declares the flags of a C. The error is a UsageError for wrong flags, and flag.ErrHelp after
// --help.
func Load[C any](p Program, args []string, defaults func() *C, flags func(*C, *flag.FlagSet)) (*Loaded[C], error) {
	file := p.File
	parse := func(c *C) (*flag.FlagSet, error) {
		set := flag.NewFlagSet(p.Name, flag.ContinueOnError)
		// The caller prints an error once, without the list of all flags.
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
		return nil, err
	}
	named := false
	given.Visit(func(f *flag.Flag) { named = named || f.Name == "config" })
	out := &Loaded[C]{Config: defaults()}
	switch err := readFile(file, out.Config); {
	case errors.Is(err, fs.ErrNotExist) && !named:
		out.NoFile = file
	case err != nil:
		return nil, err
	}
	// The flags again, over the values of the file.
	again, err := parse(out.Config)
	if err != nil {
		return nil, err
	}
	out.Rest = again.Args()
	return out, nil
}

// PrintFlags prints the flags of set like PrintDefaults, but with two dashes.
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

// Right returns the result of check-config for a right configuration. noFile is the path of the
// absent default file, or "".
func Right(noFile string) string {
	if noFile != "" {
		return "the configuration is right: there is no file " + noFile + ", so the defaults apply"
	}
	return "the configuration is right"
}

// readFile reads the file into cfg.
func readFile(path string, cfg any) error {
	meta, err := toml.DecodeFile(path, cfg)
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

// wrongType matches the decoder's error for a value of the wrong type.
var wrongType = regexp.MustCompile(`incompatible types: TOML value has type \S+; destination has type (\S+)`)

// sayType replaces the Go type in an error of the decoder by the expected TOML type.
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

// Listens reports whether this value of metrics_listen starts a server.
func Listens(address string) bool { return address != "" && address != "off" }

// CheckListen refuses an invalid value of metrics_listen.
func CheckListen(name, address string) error {
	if !Listens(address) {
		return nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("%s is %q; it must be address:port, or off", name, address)
	}
	return nil
}

// GroupID returns the id of the group that the setting socket_group names, -1 for an empty name.
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
