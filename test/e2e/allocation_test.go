// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/lab/workload"
)

// preallocated gives the file of a disk room for all of it.
func preallocated(t *testing.T, d lab.Disk) lab.Disk {
	t.Helper()
	f, err := os.OpenFile(d.Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, volumeBytes); err != nil {
		t.Fatal(err)
	}
	if taken := takenBytes(t, d.Path); taken < volumeBytes {
		t.Fatalf("%s takes %d bytes", d.Path, taken)
	}
	return d
}

// TestAPreallocatedVolumeIsAsThickWhereItWent after a move of its running guest by either method,
// which writes all the time and discards nothing, and as thin where that is asked for.
func TestAPreallocatedVolumeIsAsThickWhereItWent(t *testing.T) {
	leftToTestE2E(t)
	h, a, _ := sharedPools(t)
	mix := workload.DefaultMix
	mix.Discard, mix.Zero = 0, 0 // by which a guest gives room back
	for name, c := range map[string]struct {
		format api.Format
		args   []string
		want   string
	}{
		"raw, overlay": {api.FormatRaw, nil, api.AllocationThick},
		"raw, mirror":  {api.FormatRaw, []string{"--method", "mirror"}, api.AllocationThick},
		"raw to qcow2": {api.FormatRaw, []string{"--to-format", "qcow2"}, api.AllocationThick},
		"raw, thin":    {api.FormatRaw, []string{"--allocation", "thin"}, api.AllocationThin},
		"qcow2":        {api.FormatQcow2, nil, api.AllocationThick},
	} {
		t.Run(name, func(t *testing.T) {
			disk := preallocated(t, h.diskIn(t, a, c.format))
			disk.Mix = mix
			g := h.runningGuest(t, disk)
			g.writes(t)
			move := append([]string{"--to-pool", "b"}, c.args...)
			plan := get[api.MigrationPlan](t, h, "plan", append([]string{"volume", "migrate", g.volumeName("vda"), "--dry-run"}, move...)...)
			if plan.Allocation != c.want || *plan.NeededBytes < volumeBytes && c.want == api.AllocationThick {
				t.Errorf("the plan is %s and counts %d bytes, want %s", plan.Allocation, *plan.NeededBytes, c.want)
			}
			m := g.migrate(t, "vda", move...)
			if taken := takenBytes(t, m.Dst.Path); (taken >= volumeBytes) != (c.want == api.AllocationThick) {
				t.Errorf("%s takes %d bytes of %d, want it %s", m.Dst.Path, taken, volumeBytes, c.want)
			}
			g.assertSettledAndGoOn(t)
			g.assertSettled(t)
		})
	}
}
