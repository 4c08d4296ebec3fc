// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// recoverCommands are the commands of docs/how-to/recover.md that a pattern finds, in its groups.
func recoverCommands(t *testing.T, pattern *regexp.Regexp) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/how-to/recover.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := pattern.FindStringSubmatch(string(page))
	if commands == nil {
		t.Fatalf("recover.md has no commands that are found by %s", pattern)
	}
	return commands
}

// types does what a person does who types commands in on the host, in a directory, and returns what
// they print.
func (h *host) types(t *testing.T, dir, commands string) string {
	t.Helper()
	ctl, err := filepath.Abs("../../bin/volferryctl")
	if err != nil {
		t.Fatal(err)
	}
	return shell(t, dir, "virsh() { command virsh -q -c '"+h.Libvirtd.URI()+"' \"$@\"; }\n"+
		"volferryctl() { '"+ctl+"' --socket '"+h.Socket+"' \"$@\"; }\n"+commands)
}

// shell runs commands in a directory, which must succeed, and returns what they print.
func shell(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}
