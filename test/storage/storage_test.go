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

// The user-mode machine is as fast as this host, and has all kinds but NVMe over TCP. The tools of
// LVM, and of iSCSI with multipath, do under the unit of the connectors what the protocol wants.
func TestVolumesOnEachKindOfDevice(t *testing.T) {
	runTests(t, vm.NewUserMode(t, vm.Unconfined), "^TestStorage", "VOLFERRY_LAB_SLOWNESS=2", connectorsUnit)
}

func TestVolumesOnNamespacesOfNVMe(t *testing.T) {
	runTests(t, vm.NewEmulated(t), "^TestStorage(ARunningGuestMovesFromEachKind$|.*(NVMe|Namespace))", "VOLFERRY_LAB_SLOWNESS=5", connectorsUnit)
}

const connectorsUnit = "VOLFERRY_CONNECTORS_UNIT=/source/systemd/volferryd-connectors.service"

// runTests runs the tests of package e2e that have these names, or the names of runVariable, in a
// machine with devices and systemd.
func runTests(t *testing.T, machine vm.Machine, names string, env ...string) {
	t.Helper()
	t.Parallel()
	suite.Run(t, machine, suite.Config{
		Script:    "test/storage/devices.sh",
		Names:     cmp.Or(os.Getenv(runVariable), names),
		Env:       append([]string{"VOLUME_BYTES=" + strconv.Itoa(volumeBytes), "TMPDIR=/var/tmp"}, env...),
		DiskBytes: append([]int64{2 << 30, volumeBytes, volumeBytes, 1 << 30, 512 << 20}, slices.Repeat([]int64{volumeBytes}, 5)...),
		Systemd:   true,
	})
}
