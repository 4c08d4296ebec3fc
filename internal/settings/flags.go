// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"flag"
	"strings"

	"github.com/volferry/volferry/internal/humanize"
)

// ParseFlags parses args with set, and rewords the errors.
func ParseFlags(set *flag.FlagSet, args []string) error {
	err := set.Parse(args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	said := err.Error()
	if name, ok := strings.CutPrefix(said, "flag provided but not defined: -"); ok {
		said = "unknown flag --" + name
		var names []string
		set.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
		if near := humanize.Nearest(names, name); near != "" {
			said += ". Did you mean --" + near + "?"
		}
		return errors.New(said)
	}
	if name, ok := strings.CutPrefix(said, "flag needs an argument: -"); ok {
		return errors.New("--" + name + " needs a value")
	}
	return errors.New(strings.Replace(said, " for flag -", " for flag --", 1))
}
