// SPDX-License-Identifier: Apache-2.0

package treetest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// exposures is how exposed each service may be at the most, by `systemd-analyze
// security`, in tenths. It may only fall.
var exposures = map[string]int{
	"volferry-registry.service":    5, // a user namespace, which lowers it, would belong to root, and volferryd is root too
	"volferryd.service":            14,
	"volferryd-connectors.service": 40,
	"volferryd-access.service":     8,
	"volferryd-dialer.service":     12, // the same
	"volferryd-hook.service":       9,  // a capability that the daemon lacks keeps the daemon out
	"volferryd-images@.service":    11,
	"volferryd-privileged.service": 8, // one of the calls of @privileged is quotactl_fd
	"volferryd-processes.service":  15,
	"volferryd-storage.service":    13, // the same
}

func TestUnitsAreRightAndHardened(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("SKIPPED: there is no systemd-analyze on this machine")
	}
	services, err := filepath.Glob(filepath.Join(root, "systemd", "*.service"))
	sockets, err2 := filepath.Glob(filepath.Join(root, "systemd", "*.socket"))
	units := append(services, sockets...)
	if err := errors.Join(err, err2); err != nil || len(services) != len(exposures) {
		t.Fatalf("units %v, %v", units, err)
	}
	dir := t.TempDir()
	var copies []string
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		// The programs are not installed here, and verify wants them.
		text = []byte(strings.NewReplacer("/usr/sbin/volferryd", "/bin/true", "/usr/sbin/volferry-registry", "/bin/true").Replace(string(text)))
		name := filepath.Join(dir, filepath.Base(unit))
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		copies = append(copies, name)
	}
	verify := exec.CommandContext(t.Context(), "systemd-analyze", append([]string{"verify", "--man=no"}, copies...)...)
	// A key that systemd does not know is a line of output, and no failure.
	if out, err := verify.CombinedOutput(); err != nil || strings.Contains(string(out), dir) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	for name, most := range exposures {
		security := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--threshold="+strconv.Itoa(most), filepath.Join(dir, name))
		if out, err := security.CombinedOutput(); err != nil {
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			t.Errorf("%s may be exposed by %d tenths: %s", name, most, lines[len(lines)-1])
		}
	}
}
