// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"os"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// A host is declared dead while it is not: what it held is given to another,
// and when it hears of that it stops the guest that lost its disk, and that one
// alone, before it may change anything again.
func TestFencedHostLetsGoOfWhatItLost(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "hv1", "hv2")
	admin := c.Registry.Caller()
	h1, h2 := c.Hosts[0], c.Hosts[1]
	loser, survivor, keeper, heir := c.guest(t, h1), c.guest(t, h1), c.guest(t, h1), c.guest(t, h2)
	d := c.volume(t, h1, "db", sharedPool, "default")
	name := loser.attach(t, h1.Caller, d, 0)
	loser.write(t, name)
	loser.quiesce(t, name)
	a := get[[]api.Attachment](t, admin, "attachments", "attachment", "list", "--volume", d.Name)[0]
	e := c.volume(t, h1, "log", sharedPool, "default")
	survivor.attach(t, h1.Caller, e, 0)
	b := get[[]api.Attachment](t, admin, "attachments", "attachment", "list", "--volume", e.Name)[0]

	refuses(t, admin, api.CodeVolumeInUse, "volume", "attach", d.Name, heir.Name)
	h1.KillDaemon()
	refuses(t, admin, api.CodeHypervisorUnavailable, "attachment", "delete", a.ID, "--force")
	ctl(t, admin, "host", "fence", h1.Name, "--evidence", "the test says so", "--even-if-up")
	ctl(t, admin, "attachment", "delete", a.ID, "--force")
	ctl(t, admin, "attachment", "delete", b.ID, "--force")
	// Its guest has the image open; only after a real fence it would not.
	if err := loser.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	heirDisk := heir.attach(t, admin, d, 1)
	heir.write(t, heirDisk)
	if err := os.Remove(h1.Socket); err != nil {
		t.Fatal(err)
	}

	// The host is back, and so is the guest that lost its disk: its definition
	// still names it. QEMU's lock on the image would keep it off; a device has none.
	if err := h1.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the host has rejoined", func() bool {
		h := get[api.Host](t, admin, "host", "host", "show", h1.Name)
		return h.Status == api.HostUp && h.Epoch == 2
	})
	if _, err := h1.Libvirtd.Virsh(t.Context(), "start", loser.Name); err == nil {
		t.Error("the guest that lost its disk may be started")
	}
	// This one was running all the time.
	if state, err := survivor.State(t.Context()); err != nil || state != "shut off" {
		t.Errorf("the guest that ran on and lost its disk is %s (%v)", state, err)
	}
	if state, err := keeper.State(t.Context()); err != nil || state != "running" {
		t.Errorf("the guest that lost nothing is %s (%v)", state, err)
	}
	// Under the new epoch it works again.
	v := c.volume(t, h1, "more", localPool, "default")
	keeper.attach(t, h1.Caller, v, 0)
	heir.write(t, heirDisk)
	heir.quiesce(t, heirDisk)
	assertHolds(t, d, d.Location, heir.History(heirDisk))
	assertHolds(t, d, d.Location, loser.History(name))
}
