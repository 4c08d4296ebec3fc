// SPDX-License-Identifier: Apache-2.0

// Package confined runs tests of test/e2e on machines that confine guests: AppArmor and SELinux as
// Debian has them. Each volferryd runs under the unit of its package, and libvirtd as its package
// has it. A test fails if the kernel denies something to any program.
package confined

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
	"github.com/volferry/volferry/test/vm"
	"github.com/volferry/volferry/test/vm/boot"
)

// runVariable is a pattern of the names of the tests that run.
const runVariable = "VOLFERRY_CONFINED_RUN"

// scenarios are the tests that run without runVariable.
const scenarios = "^(TestConfined.*|TestRunningGuestKeepsEveryWriteWhateverTheFormats|TestCancelBringsTheGuestBackAtAnyTimeBeforeTheSwitch)$"

func TestTheEndToEndTestsPassWhereAppArmorConfinesGuests(t *testing.T) { pass(t, vm.AppArmor) }

func TestTheEndToEndTestsPassWhereSELinuxConfinesGuests(t *testing.T) {
	if os.Getenv(runVariable) == "" {
		t.Skip("SKIPPED: the policy of Debian 12 denies its own libvirtd to run a hook and to start a guest; " + runVariable + " runs tests nevertheless")
	}
	pass(t, vm.SELinux)
}

// pass runs the tests on a machine with a security module.
func pass(t *testing.T, security vm.SecurityModule) {
	t.Helper()
	lab.Require(t)
	machine := vm.NewUserMode(t, security)
	top, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	build(t, "test", "-c", "-o", filepath.Join(programs, "e2e.test"), "../e2e")
	build(t, "build", "-o", filepath.Join(programs, "guest"), "../lab/guest")
	args := []string{
		"/source/test/confined/host.sh",
		"/programs/e2e.test", "-test.v", "-test.parallel", "1", "-test.timeout", "0",
		"-test.run", cmp.Or(os.Getenv(runVariable), scenarios),
	}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	dir, err := os.MkdirTemp("", "vf-vm-") //nolint:usetesting // short, and large
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	err = machine.Run(t.Context(), dir, vm.Config{
		Shares: []vm.Share{
			{Host: top, Share: boot.Share{Tag: "source", Path: "/source"}},
			{Host: programs, Share: boot.Share{Tag: "programs", Path: "/programs"}},
		},
		Env: []string{
			"VOLFERRY_LAB_CONFINED=" + string(security), "VOLFERRY_UNIT=/lib/systemd/system/volferryd.service",
			"TMPDIR=/srv", "VOLFERRY_LAB=require", "VOLFERRY_LAB_SLOWNESS=3", "VOLFERRY_LAB_CACHE=/source/.cache/lab", "VOLFERRY_LAB_GUEST=/programs/guest",
		},
		Dir:     "/source/test/e2e",
		Command: args,
	}, os.Stdout)
	if failed := (*vm.ExitError)(nil); errors.As(err, &failed) {
		t.Fatalf("a test failed in the machine: see above (%v)", failed)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// build runs go for a program without cgo.
func build(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v: %s", args, err, out)
	}
}
