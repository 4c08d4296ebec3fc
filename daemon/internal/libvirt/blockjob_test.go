// SPDX-License-Identifier: Apache-2.0

package libvirt

import "testing"

// libvirt's conversion of QEMU's counters; see qemuBlockJobInfoTranslate.
func TestAJobTracksWritesOnceQEMUHasSetItsLength(t *testing.T) {
	for numbers, want := range map[[2]uint64]bool{
		{0, 1}:            false, // len 0, not ready: it scans the disk, or libvirt knows nothing
		{1, 1}:            true,  // len 0, ready: there is nothing to copy
		{0, 65536}:        true,  // the first length
		{65535, 65536}:    true,  // all is copied, and not ready yet
		{65536, 65536}:    true,  // ready
		{0, 0}:            false, // of jobs that are never ready
		{512, 1073741824}: true,
	} {
		if got := tracking(numbers[0], numbers[1]); got != want {
			t.Errorf("current %d, end %d: %v, want %v", numbers[0], numbers[1], got, want)
		}
	}
}
