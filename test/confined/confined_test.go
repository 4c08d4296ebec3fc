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
	"github.com/volferry/volferry/test/vm"
	"github.com/volferry/volferry/test/vm/suite"
)

// runVariable is a pattern for the names of tests. Without it the tests of the scenarios run.
const runVariable = "VOLFERRY_CONFINED_RUN"

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
	suite.Run(t, vm.NewUserMode(t, security), suite.Config{
		Script: "test/confined/host.sh",
		Names:  cmp.Or(os.Getenv(runVariable), evidence.Pattern()),
		Env: []string{
			"VOLFERRY_LAB_CONFINED=" + string(security), "VOLFERRY_UNIT=/lib/systemd/system/volferryd.service",
			"TMPDIR=/srv", "VOLFERRY_LAB_SLOWNESS=3",
		},
	})
}
