// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
	"github.com/volferry/volferry/test/vm"
	"github.com/volferry/volferry/test/vm/boot"
)

// volumeBytes is the size of the volumes of package e2e.
const volumeBytes = 64 << 20

// runVariable is a pattern of the tests that run; without it all of storage do.
const runVariable = "VOLFERRY_STORAGE_RUN"

func TestVolumesOnEachKindOfDevice(t *testing.T) {
	runTests(t, cmp.Or(os.Getenv(runVariable), "^TestStorage"), false)
}

// The tools of LVM, of iSCSI with multipath and of NVMe over TCP do under the unit of the
// connectors what the protocol wants.
func TestConnectorsKeepToTheProtocolUnderTheirUnit(t *testing.T) {
	runTests(t, cmp.Or(os.Getenv(runVariable), "^TestStorageThe(ConnectorOf|Example).*KeepsToTheProtocol"), true,
		"VOLFERRY_CONNECTORS_UNIT=/source/systemd/volferryd-connectors.service")
}

// runTests runs the tests of package e2e that have these names in a machine with devices, with
// systemd or without it.
func runTests(t *testing.T, names string, systemd bool, env ...string) {
	t.Helper()
	lab.Require(t)
	machine := vm.NewEmulated(t)
	top, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	build(t, "test", "-c", "-o", filepath.Join(programs, "e2e.test"), "../e2e")
	build(t, "build", "-o", filepath.Join(programs, "guest"), "../lab/guest")
	disks, err := os.MkdirTemp("", "vf-vm-") //nolint:usetesting // short, and large
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(disks) })
	err = machine.Run(t.Context(), disks, vm.Config{
		Shares: []vm.Share{
			{Host: top, Share: boot.Share{Tag: "source", Path: "/source"}},
			{Host: programs, Share: boot.Share{Tag: "programs", Path: "/programs"}},
		},
		DiskBytes: append([]int64{2 << 30, volumeBytes, volumeBytes, 1 << 30, 512 << 20}, slices.Repeat([]int64{volumeBytes}, 5)...),
		Systemd:   systemd,
		Env: append([]string{
			"VOLUME_BYTES=" + strconv.Itoa(volumeBytes), "TMPDIR=/var/tmp",
			"VOLFERRY_LAB=require", "VOLFERRY_LAB_SLOWNESS=5", "VOLFERRY_LAB_CACHE=/source/.cache/lab", "VOLFERRY_LAB_GUEST=/programs/guest",
		}, env...),
		Dir: "/source/test/e2e",
		Command: []string{
			"/source/test/storage/devices.sh",
			"/programs/e2e.test", "-test.v", "-test.parallel", "1", "-test.timeout", "0", "-test.run", names,
		},
	}, os.Stdout)
	if failed := (*vm.ExitError)(nil); errors.As(err, &failed) {
		t.Fatalf("a test failed in the machine, or its storage could not be made: see above (%v)", failed)
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
