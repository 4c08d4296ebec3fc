// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/volferry/volferry/internal/api"
)

// The safe flow of a volume that several instances share: it does not move
// while two have it; one is detached, it moves under the other, and comes back.
func TestVolumeSharedByTwoHostsMovesOnlyWhenOneHasIt(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "hv1", "hv2")
	admin := c.Registry.Caller()
	ctl(t, admin, "type", "create", "clustered", "--multiattach")
	h1, h2 := c.Hosts[0], c.Hosts[1]
	g1, g2 := c.guest(t, h1), c.guest(t, h2)
	d := c.volume(t, h1, "db", sharedPool, "clustered")

	// One from its host's socket, one from the registry's.
	disk1, disk2 := g1.attach(t, h1.Caller, d, 0), g2.attach(t, admin, d, 1)
	g1.write(t, disk1)
	g2.write(t, disk2)

	before := get[api.Volume](t, admin, "volume", "volume", "show", d.Name)
	if len(before.Attachments) != 2 || before.Status != api.VolumeInUse {
		t.Fatalf("volume is %+v, want it in use twice", before)
	}
	refuses(t, h1.Caller, api.CodeMultiattached, "volume", "migrate", d.Name, "--to-pool", localPool)
	refuses(t, admin, api.CodeMultiattached, "volume", "migrate", d.Name, "--to-pool", localPool)
	refuses(t, admin, api.CodeMultiattached, "migration", "start", before.Attachments[1].ID, "--to-pool", localPool)
	after := get[api.Volume](t, admin, "volume", "volume", "show", d.Name)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("a refused migration changed the volume (-before +after):\n%s", diff)
	}
	g1.write(t, disk1) // undisturbed
	g2.write(t, disk2)

	g2.quiesce(t, disk2)
	second := g2.History(disk2)
	g2.detach(t, h2.Caller, d)

	// Under the lock of its migration nobody comes back.
	moved := get[api.Migration](t, admin, "migration", "volume", "migrate", d.Name, "--to-pool", newSharedPool, "--bandwidth", "8MiB/s", "--no-wait")
	refuses(t, h2.Caller, api.CodeMigrationActive, "volume", "attach", d.Name, g2.Name)
	ctl(t, admin, "migration", "watch", moved.ID)
	moved = get[api.Migration](t, admin, "migration", "migration", "show", moved.ID)
	if moved.State != api.MigrationCompleted || moved.Method != "mirror" {
		t.Fatalf("migration is %+v, want it completed by mirror", moved)
	}
	g1.write(t, disk1)
	now := get[api.Volume](t, admin, "volume", "volume", "show", d.Name)
	if now.Location.Path == before.Location.Path || now.Generation != before.Generation+1 || len(now.Attachments) != 1 {
		t.Errorf("after the migration the volume is %+v", now)
	}

	d.lab.Path = now.Location.Path
	disk2 = g2.attach(t, h2.Caller, d, 1, "--mode", "ro")
	for _, seen := range look(t, g2) {
		if seen.Name == disk2 && !seen.ReadOnly {
			t.Errorf("disk %s of a read-only attachment can be written in the guest", disk2)
		}
	}
	g1.write(t, disk1)
	g1.quiesce(t, disk1)
	assertHolds(t, d, now.Location, g1.History(disk1))
	assertHolds(t, d, now.Location, second)
	g2.detach(t, admin, d)
	g1.detach(t, admin, d)
	if v := get[api.Volume](t, admin, "volume", "volume", "show", d.Name); v.Status != api.VolumeAvailable || len(v.Attachments) != 0 {
		t.Errorf("after both detaches the volume is %+v", v)
	}
}
