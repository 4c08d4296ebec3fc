// SPDX-License-Identifier: Apache-2.0

package cmdline

import (
	"testing"

	"github.com/urfave/cli/v2"
)

func TestOnlyASlipOfACommandIsTakenForIt(t *testing.T) {
	var commands []*cli.Command
	for _, name := range []string{"host", "volume", "instance", "migration", "show", "list", "events"} {
		commands = append(commands, &cli.Command{Name: name})
	}
	commands = append(commands, &cli.Command{Name: "__complete", Hidden: true})
	for word, want := range map[string]string{
		"frob": "", "x": "", "ab": "", "__complet": "",
		"hots": "host", "hst": "host", "volumes": "volume", "voluem": "volume", "mig": "migration", "migratoin": "migration", "lst": "list", "shw": "show", "evnets": "events",
	} {
		if got := Nearest(commands, word); got != want {
			t.Errorf("%q is taken for %q, want %q", word, got, want)
		}
	}
}
