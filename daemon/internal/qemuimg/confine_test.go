// SPDX-License-Identifier: Apache-2.0

package qemuimg

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// childRuns runs a script in the place of qemu-img and returns its output.
func childRuns(t *testing.T, script string, opts childOptions) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "qemu-img"), []byte("#!/bin/bash\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	out, err := run(t.Context(), []string{"info"}, opts)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAChildIsBoundedInMemoryFilesAndCores(t *testing.T) {
	// The script waits for the limits, which are set after its start.
	out := childRuns(t, `until [[ $(ulimit -Hn) == 1024 ]]; do :; done; ulimit -Hv; ulimit -Hc; ulimit -v; ulimit -c`, childOptions{})
	kib := strconv.Itoa(childAddressSpaceBytes >> 10)
	if want := []string{kib, "0", kib, "0"}; strings.Join(strings.Fields(out), " ") != strings.Join(want, " ") {
		t.Errorf("address space and core file are bounded to %q, not to %q", strings.Fields(out), want)
	}
}

func TestAChildSeesNothingOfTheEnvironmentButThePath(t *testing.T) {
	t.Setenv("VOLFERRY_SECRET", "x")
	out := childRuns(t, `tr '\0' '\n' </proc/$$/environ`, childOptions{})
	for _, line := range strings.Fields(out) {
		name, _, _ := strings.Cut(line, "=")
		if name != "PATH" && name != "LC_ALL" {
			t.Errorf("the child has %s", line)
		}
	}
	if !strings.Contains(out, "LC_ALL=C") {
		t.Errorf("the child's messages may be in any language: %q", out)
	}
}

func TestAChildHasNoFileOfOursButTheOneThatItIsGiven(t *testing.T) {
	kept, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close() //nolint:errcheck // it only reads
	given, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer given.Close() //nolint:errcheck // it only reads
	out := childRuns(t, `for fd in /proc/$$/fd/*; do readlink "$fd"; done; exit 0`, childOptions{files: []*os.File{given}})
	if strings.Contains(out, "/etc/passwd") || !strings.Contains(out, "/dev/zero") {
		t.Errorf("the child has open: %q", out)
	}
}
