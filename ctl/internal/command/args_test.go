// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"testing"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/session"
)

func TestFlagsMayStandAnywhere(t *testing.T) {
	for typed, want := range map[string]string{
		"volume migrate V --to-pool P":             "volume migrate --to-pool P -- V",
		"volume migrate --to-pool P V":             "volume migrate --to-pool P -- V",
		"volume migrate V --to-pool=P -o json":     "-o json volume migrate --to-pool=P -- V",
		"volume -o json list":                      "-o json volume list",
		"volume list --quiet":                      "--quiet volume list",
		"volume migrate --no-wait V --to-pool P":   "--no-wait volume migrate --to-pool P -- V",
		"instance adopt --all V":                   "instance adopt --all -- V",
		"instance adopt V --all":                   "instance adopt --all -- V",
		"volume set V --bootable=false --name N":   "volume set --bootable=false --name N -- V",
		"events --since 5 --follow --socket /s":    "--socket /s events --since 5 --follow",
		"volume show -- --odd-name":                "volume show -- --odd-name",
		"volume show list":                         "volume show -- list",
		"volume show help":                         "volume show -- help",
		"volume lst":                               "volume lst",
		"volume list --unknown":                    "volume list --unknown",
		"help volume migrate":                      "volume migrate --help",
		"help":                                     "--help",
		"bogus --help":                             "bogus",
		"migrate V --to-pool P":                    "migrate V P",
		"volume lst --nope":                        "volume lst",
		"--nope V":                                 "--nope V",
		"help volume bogus":                        "volume bogus",
		"volume show V --help":                     "volume show --help",
		"volume show -- --help":                    "volume show -- --help",
		"volume migrate V --to-pool":               "volume migrate --to-pool",
		"volume list -o":                           "-o",
		"type create T --pool a --pool b --socket": "--socket",
	} {
		app := newApp(nil, nil)
		got := cmdline.Arrange(app, append([]string{session.Program}, strings.Fields(typed)...))
		if line := strings.Join(got[1:], " "); line != want {
			t.Errorf("arrange(%s)\n got %s\nwant %s", typed, line, want)
		}
	}
}

func TestErrorsAreJSONWhereTheLineAsksForIt(t *testing.T) {
	for line, want := range map[string]bool{
		"-o json volume list":           true,
		"--output json volume list":     true,
		"--output=json volume list":     true,
		"-o table volume list":          false,
		"volume list":                   false,
		"volume show -- -o json":        false,
		"-o":                            false,
		"--socket /s -o json --unknown": true,
	} {
		if got := cmdline.WantsJSON(strings.Fields(session.Program + " " + line)); got != want {
			t.Errorf("wantsJSON(%s) = %v, want %v", line, got, want)
		}
	}
}
