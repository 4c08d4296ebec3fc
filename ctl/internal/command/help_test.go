// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"github.com/volferry/volferry/ctl/internal/cmdline"
	"github.com/volferry/volferry/ctl/internal/session"
)

var update = flag.Bool("update", false, "write testdata/help.golden")

// All help texts are in one golden file, to be read together.
func TestHelpOfEveryCommand(t *testing.T) {
	var got strings.Builder
	for _, path := range commandPaths(newApp(nil, nil).Commands, nil) {
		got.WriteString("$ " + strings.Join(path, " ") + " --help\n" + runHelp(t, path) + "\n")
	}
	golden := filepath.Join("testdata", "help.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("help texts; 'go test -update' accepts them (-want +got):\n%s", d)
	}
}

func TestEveryPlaceholderIsExplained(t *testing.T) {
	word := regexp.MustCompile(`[A-Z_]{2,}`)
	var check func(commands []*cli.Command)
	check = func(commands []*cli.Command) {
		for _, c := range commands {
			for _, place := range word.FindAllString(c.ArgsUsage, -1) {
				if cmdline.PlaceholderHelp[place] == "" && !c.Hidden {
					t.Errorf("%s: nothing says what %s is", c.Name, place)
				}
			}
			check(c.Subcommands)
		}
	}
	check(newApp(nil, nil).Commands)
}

// commandPaths returns the command lines of all visible commands.
func commandPaths(commands []*cli.Command, above []string) [][]string {
	paths := [][]string{}
	if above == nil {
		paths = append(paths, []string{session.Program})
		above = []string{session.Program}
	}
	for _, c := range commands {
		if c.Hidden {
			continue
		}
		path := append(append([]string{}, above...), c.Name)
		paths = append(paths, path)
		paths = append(paths, commandPaths(c.Subcommands, path)...)
	}
	return paths
}

func runHelp(t *testing.T, path []string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	app := newApp(&stdout, &stderr)
	app.Version = "1.2.3"
	if err := app.RunContext(t.Context(), cmdline.Arrange(app, append(path, "--help"))); err != nil {
		t.Errorf("%s --help: %v", strings.Join(path, " "), err)
	}
	if stderr.Len() > 0 {
		t.Errorf("%s --help wrote to stderr: %s", strings.Join(path, " "), &stderr)
	}
	return stdout.String()
}
