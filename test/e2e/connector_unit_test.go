// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// connectorsUnit is a variable that names the unit of the connectors as the package installs it.
// Where it is set, and systemd runs, the kit for vendors runs under a unit like it: the tools of
// the storage may do what the unit lets them do.
const connectorsUnit = "VOLFERRY_CONNECTORS_UNIT"

// connectorTest runs `volferryd connector-test`, and returns what it prints.
func connectorTest(t *testing.T, args ...string) (string, error) {
	t.Helper()
	command := append([]string{filepath.Join(programs(t), "volferryd"), "connector-test"}, args...)
	shipped := os.Getenv(connectorsUnit)
	if shipped == "" {
		out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput()
		return string(out), err
	}
	unit, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	said := filepath.Join(t.TempDir(), "said")
	for i, word := range command {
		command[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$").Replace(word) + `"`
	}
	// What follows is what a drop-in could say: the sandbox is that of the shipped unit.
	const name = "connector-test.service"
	own := string(unit) + "\n[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nExecStart=\nExecStart=" + strings.Join(command, " ") +
		"\nStandardOutput=append:" + said + "\nStandardError=inherit\n"
	if err := os.WriteFile("/run/systemd/system/"+name, []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "systemctl", "daemon-reload").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	failed, err := exec.CommandContext(t.Context(), "systemctl", "start", name).CombinedOutput() // until it has ended
	out, _ := os.ReadFile(said)                                                                  // it may not have begun
	return string(out) + string(failed), err
}
