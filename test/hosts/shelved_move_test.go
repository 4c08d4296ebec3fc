// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"os"
	"slices"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/site"
)

// The pool of an instance that no host has is drained, by the one host that is left of
// the two that reach it, whose daemon is killed in the middle; the instance comes back
// there. Then one volume gets another format while the instance is away.
func TestAShelvedInstanceComesBackFromWhereItsVolumesWereMoved(t *testing.T) {
	leftToTestHosts(t)
	t.Parallel()
	c := startCluster(t, "hv1", "hv2")
	admin, h1, h2 := c.Registry.Caller(), c.Hosts[0], c.Hosts[1]
	g := c.mobile(t, "web")
	ctl(t, admin, "instance", "start", g.Name)
	assertBooted(t, g, "web")
	g.write(t, "vdb")
	ctl(t, admin, "instance", "shelve", g.Name)
	c.assertOnShelf(t, g)

	h1.KillDaemon()
	ended := inBackground(t, admin, "pool", "drain", sharedPool, "--to", newSharedPool, "--bandwidth", "4MiB/s", "--delete-source")
	data := g.Name + "-vdb"
	eventually(t, "host hv2 copies the data volume", func() bool { return copying(t, admin, data) })
	for _, args := range [][]string{
		{"instance", "unshelve", g.Name, "--host", h2.Name},
		{"volume", "detach", data, g.Name},
		{"volume", "migrate", data, "--to-pool", newSharedPool},
		{"instance", "forget", g.Name, "--with-definition"},
	} {
		refuses(t, admin, api.CodeMigrationActive, args...)
	}
	ctl(t, admin, "volume", "which", data) // which fails where the witnesses disagree
	restart(t, h2)
	// A drain does not end well while it is not known what a host has in the pool.
	if err := h1.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatalf("the drain: %v", err)
	}
	d := disk{Volume: get[api.Volume](t, admin, "volume", "volume", "show", data)}
	if d.Location.Pool != newSharedPool || d.Status != api.VolumeInUse || len(d.Attachments) != 1 || d.Attachments[0].Location != d.Location {
		t.Errorf("the data volume that was moved is %+v", d.Volume)
	}
	for _, was := range g.disks {
		if _, err := os.Stat(was.Path); err == nil {
			t.Errorf("%s is left", was.Path)
		}
	}
	assertHolds(t, d, d.Location, g.History("vdb"))
	there := c.unshelvedOn(t, g, h2)
	there.write(t, "vdb")

	ctl(t, admin, "instance", "shelve", g.Name)
	ctl(t, admin, "volume", "migrate", data, "--to-pool", sharedPool, "--to-format", "qcow2")
	d.Volume = get[api.Volume](t, admin, "volume", "volume", "show", data)
	there = c.unshelvedOn(t, there, h2)
	there.write(t, "vdb")
	there.quiesce(t, "vdb")
	ctl(t, admin, "instance", "stop", g.Name, "--force")
	if d.Location.Format != api.FormatQcow2 {
		t.Errorf("the data volume is at %+v, want it as qcow2", d.Location)
	}
	assertHolds(t, d, d.Location, there.History("vdb"))
}

// copying reports whether a migration copies the volume now.
func copying(t *testing.T, at site.Caller, volume string) bool {
	t.Helper()
	return slices.ContainsFunc(get[[]api.Migration](t, at, "migrations", "migration", "list"), func(m api.Migration) bool {
		return m.VolumeName == volume && m.State == api.MigrationCopying && m.BytesDone > 0
	})
}

// unshelvedOn brings an instance to a host and returns it there.
func (c *cluster) unshelvedOn(t *testing.T, g *guest, h *site.Host) *guest {
	t.Helper()
	ctl(t, c.Registry.Caller(), "instance", "unshelve", g.Name, "--host", h.Name)
	c.assertOnlyAt(t, g, h)
	there := &guest{Guest: g.At(h.Libvirtd.Connection), host: h, disks: g.disks}
	assertBooted(t, there, "web")
	return there
}
