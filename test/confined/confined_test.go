// SPDX-License-Identifier: Apache-2.0

// Package confined runs tests of test/e2e on machines that confine guests: AppArmor and SELinux as
// Debian has them. Each volferryd runs under the unit of its package, and libvirtd as its package
// has it. A test fails if the kernel denies something to any program.
package confined

import (
	"cmp"
	"os"
	"testing"

	"github.com/volferry/volferry/test/confined/evidence"
	"github.com/volferry/volferry/test/crash"
	"github.com/volferry/volferry/test/vm"
	"github.com/volferry/volferry/test/vm/suite"
)

const (
	// runVariable is a pattern for the names of tests. Without it the tests of the scenarios run.
	runVariable = "VOLFERRY_CONFINED_RUN"
	// suiteVariable is the release of Debian of the machine, if it is not bookworm.
	suiteVariable = "VOLFERRY_MACHINE_SUITE"
)

func TestTheEndToEndTestsPassWhereAppArmorConfinesGuests(t *testing.T) {
	logMachine(t, vm.AppArmor)
	pass(t, vm.AppArmor)
}

func TestTheEndToEndTestsPassWhereSELinuxConfinesGuests(t *testing.T) {
	logMachine(t, vm.SELinux)
	if os.Getenv(runVariable) == "" {
		t.Skip("SKIPPED: not all scenarios were seen to pass under Debian's policy of SELinux; " + runVariable + " runs tests nevertheless")
	}
	pass(t, vm.SELinux)
}

// logMachine logs the machine of the next results.
func logMachine(t *testing.T, security vm.SecurityModule) {
	t.Helper()
	t.Log(evidence.MachineLine(string(security), cmp.Or(os.Getenv(suiteVariable), "bookworm")))
}

// pass runs the tests on a machine with a security module.
func pass(t *testing.T, security vm.SecurityModule) {
	t.Helper()
	suite.Run(t, vm.NewUserMode(t, security), suite.Config{
		Script: "test/confined/host.sh",
		Names:  cmp.Or(os.Getenv(runVariable), evidence.Pattern()),
		Env: []string{
			"VOLFERRY_LAB_CONFINED=" + string(security), "VOLFERRY_UNIT=/lib/systemd/system/volferryd.service",
			"TMPDIR=/srv", "VOLFERRY_LAB_SLOWNESS=3", crash.Env + "=1m",
		},
	})
}
