// SPDX-License-Identifier: Apache-2.0

package site

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The end-to-end tests say something of the shipped unit only if theirs is like it.
func TestAHostsUnitHasAllThatTheShippedOneHas(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := os.ReadFile(filepath.Join(root, "systemd", "volferryd.service"))
	if err != nil {
		t.Fatal(err)
	}
	unit, err := unitLike(string(shipped), "/srv/a/log", []string{`POINT=50% "quoted"`}, []string{"--name", `$HOME\`})
	if err != nil {
		t.Fatal(err)
	}
	kept, own, _ := strings.Cut(unit, "\n\n[Unit]\nStartLimit")
	var missing []string
	for line := range strings.Lines(string(shipped)) {
		if !strings.Contains(kept+"\n", line) {
			missing = append(missing, line)
		}
	}
	if want := []string{"Sockets=volferryd.socket volferryd-metrics.socket\n"}; !slices.Equal(missing, want) {
		t.Errorf("the unit lacks %q of the shipped one, want %q", missing, want)
	}
	for _, want := range []string{
		"\nExecStart=\nExecStart=/usr/sbin/volferryd \"--name\" \"$$HOME\\\\\"\n",
		"\nEnvironment=\"POINT=50%% \\\"quoted\\\"\"\n",
		"\nStandardOutput=append:/srv/a/log\n",
	} {
		if !strings.Contains(own, want) {
			t.Errorf("the unit lacks %q:\n%s", want, own)
		}
	}
}

func TestTheServersOfAMachinesDialerAreThoseOfAllTests(t *testing.T) {
	first := withNBDServers("# a comment\nregistry = \"x\"\n[rbd]\nkey = 1\n", []string{"127.0.0.1:1"})
	got := string(withNBDServers(string(first), []string{"127.0.0.1:1", "127.0.0.1:2"}))
	if want := "nbd_servers = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n# a comment\nregistry = \"x\"\n[rbd]\nkey = 1\n"; got != want {
		t.Errorf("the configuration is\n%s", got)
	}
}
