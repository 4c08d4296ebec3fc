// SPDX-License-Identifier: Apache-2.0

// Package units runs tests on machines with systemd. Those of test/e2e run with each volferryd
// under the unit of its package: what its sandbox keeps from the daemon is kept from it there too.
package units

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/machine"
	"github.com/volferry/volferry/test/site"
)

const (
	// runVar is a pattern for the names of the tests to run; empty is all of them.
	runVar = "VOLFERRY_UNITS_RUN"
	// suiteVar is the release of Debian of the machine, if it is not the one of the host.
	suiteVar = "VOLFERRY_MACHINE_SUITE"
)

// scratch is where the hosts of the tests are on the machine: below /srv, where the unit
// lets the daemon write.
const scratch = "/srv/tmp"

// The end-to-end tests pass on a machine with systemd, where systemd starts the daemons
// under the unit, and beside them the helpers that do what its sandbox keeps from them.
func TestTheEndToEndTestsPassUnderTheUnit(t *testing.T) {
	pass(t, "test/e2e", "VOLFERRY_UNIT=/lib/systemd/system/volferryd.service")
}

// The suite that the tests' own hypervisor passes too, on the libvirt and QEMU of the machine's
// release. make test-conformance runs it on those of the host.
func TestTheConformanceSuitePassesOnAnotherRelease(t *testing.T) {
	if os.Getenv(suiteVar) == "" {
		t.Skipf("SKIPPED: %s names no other release of Debian", suiteVar)
	}
	pass(t, "daemon/internal/libvirt")
}

// pass runs the tests of a package on a machine of their own, on which volferryd is installed
// and does not run.
func pass(t *testing.T, pkg string, env ...string) {
	t.Helper()
	lab.Require(t)
	machine.Require(t)
	root, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(root, "/tmp/") {
		lab.SkipOrFail(t, "a machine has a /tmp of its own, and does not see "+root+"; clone the repository elsewhere")
	}
	dir := lab.TempDir(t)
	program := filepath.Join(dir, "tests")
	output(t, "go", "test", "-c", "-o", program, "./"+filepath.Join("../..", pkg))
	hosts := filepath.Join(dir, "tmp")
	if err := os.Mkdir(hosts, 0o755); err != nil {
		t.Fatal(err)
	}

	// The tests build the program of their guests.
	binds := map[string]string{root: root, scratch: hosts}
	env = append(env, "TMPDIR="+scratch, "VOLFERRY_LAB=require", "GOPROXY=off")
	for _, name := range []string{"GOROOT", "GOMODCACHE", "GOCACHE"} {
		at := "/srv/" + strings.ToLower(name)
		binds[at] = output(t, "go", "env", name)
		env = append(env, name+"="+at)
	}
	if cache := os.Getenv("VOLFERRY_LAB_CACHE"); cache != "" {
		binds["/srv/lab"] = cache
		env = append(env, "VOLFERRY_LAB_CACHE=/srv/lab")
	}
	m := machine.Start(t, machine.Config{Name: "hv1", Binds: binds, LoopDevices: true})
	install(t, m, root)

	if err := m.CopyIn(t.Context(), "/srv", program); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--chdir=" + filepath.Join(root, pkg)}, env...)
	args = append(args, "PATH=/srv/goroot/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "/srv/tests", "-test.v",
		"-test.skip", "^TestCeph") // a cluster is no part of the machine: make test-storage has one
	if testing.Short() {
		args = append(args, "-test.short")
	}
	if pattern := os.Getenv(runVar); pattern != "" {
		args = append(args, "-test.run", pattern)
	}
	if deadline, ok := t.Deadline(); ok {
		args = append(args, "-test.timeout", (time.Until(deadline) - time.Minute).String())
	}
	cmd := m.Command(t.Context(), "env", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}

// install installs volferryd as its package has it. The machine's own daemon and libvirtd do
// nothing here, and are masked, because the package restarts libvirtd: a start of libvirtd that is
// under way would cancel the stop of its sockets.
func install(t *testing.T, m *machine.Machine, root string) {
	t.Helper()
	debs, err := filepath.Glob(filepath.Join(root, "dist", "volferryd_*.deb"))
	if err != nil || len(debs) != 1 {
		t.Fatalf("there is not one package volferryd in dist/: %v, %v; run make packages first", debs, err)
	}
	if err := m.InstallDebs(t.Context(), debs...); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Script(t.Context(), `
		systemctl stop volferryd.socket volferryd-metrics.socket volferryd.service
		for daemon in libvirtd virtlogd virtlockd; do
			systemctl mask --runtime --now $daemon.service $daemon.socket $daemon-ro.socket $daemon-admin.socket
		done`); err != nil {
		t.Fatal(err)
	}
}

// output is what a program prints, which must succeed.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).Output()
	if err != nil {
		t.Fatalf("%s %s: %v", program, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}
