// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// Guests of two hosts, and two of one host, write to a volume from its first block copied to the
// last. Every write that they were told is done is at the destination, and nothing is left of
// the move on the hosts.
func TestVolumeSharedByTwoHostsMovesWhileAllItsGuestsWrite(t *testing.T) {
	t.Parallel()
	moveWhileAllWrite(t, "hv1", "hv2")
}

func TestVolumeSharedOnOneHostMovesWhileItsGuestsWrite(t *testing.T) {
	t.Parallel()
	leftToTestHosts(t)
	moveWhileAllWrite(t, "hv1", "hv1")
}

func moveWhileAllWrite(t *testing.T, one, other string) {
	t.Helper()
	names := []string{one}
	if other != one {
		names = append(names, other)
	}
	c := startCluster(t, names...)
	admin := c.Registry.Caller()
	ctl(t, admin, "type", "create", "clustered", "--multiattach")
	h1, h2 := c.Hosts[0], c.Hosts[len(c.Hosts)-1]
	for _, h := range c.Hosts { // which an older volferryd does not know
		h.StopDaemon()
		h.Flags = append(h.Flags, "--libvirt-state-dir", filepath.Join(h.Libvirtd.Dir, "lib", "qemu"))
		if err := h.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	g1, g2 := c.guest(t, h1), c.guest(t, h2)
	d := c.volume(t, h1, "db", sharedPool, "clustered")
	disk1, disk2 := g1.attach(t, h1.Caller, d, 0), g2.attach(t, h2.Caller, d, 1)
	g1.write(t, disk1)
	g2.write(t, disk2)
	before := get[api.Volume](t, admin, "volume", "volume", "show", d.Name)

	began := time.Now()
	ctl(t, admin, "volume", "migrate", d.Name, "--to-pool", newSharedPool, "--live-shared", "--max-pause", "30s", "--yes")
	ended := time.Now()
	assertAwake(t, c, g1, disk1, g2, disk2)
	now := get[api.Volume](t, admin, "volume", "volume", "show", d.Name)
	if now.Location.Pool != newSharedPool || now.Generation != before.Generation+1 {
		t.Errorf("after the move the volume is %+v", now)
	}
	for _, a := range now.Attachments {
		if a.Location != now.Location {
			t.Errorf("attachment %s is at %+v", a.ID, a.Location)
		}
	}
	g1.quiesce(t, disk1)
	g2.quiesce(t, disk2)
	for g, disk := range map[*guest]string{g1: disk1, g2: disk2} {
		h := g.History(disk)
		assertHolds(t, d, now.Location, h)
		pace := h.Between(began, ended)
		t.Logf("guest %s: %d writes in the %s of the move, and a silence of %s", g.Name, pace.Acked, ended.Sub(began).Round(time.Millisecond), pace.LongestGap.Round(time.Millisecond))
		if pace.Acked < 50 {
			t.Errorf("guest %s did not write while its volume was copied", g.Name)
		}
	}
}
