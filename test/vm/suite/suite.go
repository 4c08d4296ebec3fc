// SPDX-License-Identifier: Apache-2.0

// Package suite runs the tests of test/e2e in a virtual machine of package vm.
package suite

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
	"github.com/volferry/volferry/test/vm"
)

// Config says which tests run, and where.
type Config struct {
	// Script is a program of the repository, by its path there. It prepares the machine and
	// becomes the command in its arguments.
	Script string
	// Names is a pattern for the names of the tests.
	Names string
	// Env are more variables of the tests.
	Env []string
	// DiskBytes and Systemd go into vm.Config as they are. Script and tests find the paths of the
	// disks in the variable DISKS.
	DiskBytes []int64
	Systemd   bool
}

// Run runs the tests in the machine, one after the other, and fails if one of them fails. The
// machine has the repository at /source.
func Run(t *testing.T, machine vm.Machine, cfg Config) {
	t.Helper()
	lab.Require(t)
	top, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	Build(t, "test", "-c", "-o", filepath.Join(programs, "e2e.test"), "../e2e")
	Build(t, "build", "-o", filepath.Join(programs, "guest"), "../lab/guest")
	dir, err := os.MkdirTemp("", "vf-vm-") //nolint:usetesting // short, and large
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	args := []string{"-test.v", "-test.parallel", "1", "-test.timeout", "0", "-test.run", cfg.Names}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	disks := make([]string, len(cfg.DiskBytes))
	for i := range disks {
		disks[i] = machine.Disk(i)
	}
	on := vm.Repository(top, programs)
	on.Env = slices.Concat(on.Env, []string{"DISKS=" + strings.Join(disks, " "), "VOLFERRY_LAB=require"}, cfg.Env)
	on.DiskBytes, on.Systemd, on.Dir = cfg.DiskBytes, cfg.Systemd, "/source/test/e2e"
	on.Command = append([]string{filepath.Join("/source", cfg.Script), "/programs/e2e.test"}, args...)
	err = machine.Run(t.Context(), dir, on, os.Stdout)
	if failed := (*vm.ExitError)(nil); errors.As(err, &failed) {
		t.Fatalf("a test failed in the machine, or the machine could not be prepared: see above (%v)", failed)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Build runs go for a program without cgo.
func Build(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v: %s", args, err, out)
	}
}
