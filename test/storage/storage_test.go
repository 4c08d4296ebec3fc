// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/volferry/volferry/test/vm"
	"github.com/volferry/volferry/test/vm/suite"
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
	suite.Run(t, vm.NewEmulated(t), suite.Config{
		Script:    "test/storage/devices.sh",
		Names:     names,
		Env:       append([]string{"VOLUME_BYTES=" + strconv.Itoa(volumeBytes), "TMPDIR=/var/tmp", "VOLFERRY_LAB_SLOWNESS=5"}, env...),
		DiskBytes: append([]int64{2 << 30, volumeBytes, volumeBytes, 1 << 30, 512 << 20}, slices.Repeat([]int64{volumeBytes}, 5)...),
		Systemd:   systemd,
	})
}
