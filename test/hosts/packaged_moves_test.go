// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"path/filepath"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
)

// Two hypervisors and a registry with nothing but the packages, their units and
// certificates do all that a site is for, through deaths of each of them.
func TestPackagesOnSeveralHosts(t *testing.T) {
	leftToTestHosts(t)
	t.Parallel()
	s := startPackagedSite(t, "hv1", "hv2")
	for _, claim := range []struct {
		name string
		test func(*testing.T)
	}{
		{"a volume moves under its guest", s.testMove},
		{"a shared volume moves with one guest or with all paused", s.testShared},
		{"a drain empties the pool on both hosts", s.testDrain},
		{"an instance is shelved here and unshelved there", s.testShelve},
		{"a move goes on when the registry was away", s.testRegistryAway},
		{"a move goes on when the network was cut", s.testNetworkCut},
		{"a move goes on when its host was rebooted", s.testReboot},
		{"a move goes on when its host lost power", s.testPowerCut},
	} {
		t.Run(claim.name, func(t *testing.T) {
			claim.test(t)
			s.assertNothingLeft(t)
		})
	}
}

func (s *packagedSite) testMove(t *testing.T) {
	h := s.hosts[0]
	g := h.start(t, "mover")
	ctl(t, h.at, "volume", "migrate", "mover-vda", "--to-pool", sharedPool)
	if v := get[api.Volume](t, s.admin, "volume", "volume", "show", "mover-vda"); v.Location.Pool != sharedPool {
		t.Errorf("the volume is in pool %s", v.Location.Pool)
	}
	h.finish(t, g, "vda", "mover-vda")
}

func (s *packagedSite) testShared(t *testing.T) {
	h1, h2 := s.hosts[0], s.hosts[1]
	ctl(t, s.admin, "type", "create", "clustered", "--multiattach")
	g1, g2 := h1.start(t, "share1"), h2.start(t, "share2")
	v := get[api.Volume](t, h1.at, "volume", "volume", "create", "db", "--size", "32MiB", "--pool", sharedPool, "--type", "clustered")
	d := disk{Volume: v, lab: lab.Disk{Volume: lab.Volume{Path: v.Location.Path, Format: string(v.Location.Format)}, Fill: lab.Fill{Seed: 4711, Percent: 30}}}
	if err := lab.FillVolume(h1.Path(v.Location.Path), d.lab.Fill); err != nil {
		t.Fatal(err)
	}
	disk1, disk2 := g1.attach(t, h1.at, d, 0), g2.attach(t, s.admin, d, 1)
	g1.write(t, disk1)
	g2.write(t, disk2)
	refuses(t, h1.at, api.CodeMultiattached, "volume", "migrate", "db", "--to-pool", newSharedPool)
	refuses(t, s.admin, api.CodeMultiattached, "volume", "migrate", "db", "--to-pool", newSharedPool)

	ctl(t, s.admin, "volume", "migrate", "db", "--to-pool", newSharedPool, "--pause-all", "--yes")
	g1.write(t, disk1)
	g2.write(t, disk2)
	g2.quiesce(t, disk2)
	second := g2.History(disk2)
	g2.detach(t, h2.at, d)
	ctl(t, s.admin, "volume", "migrate", "db", "--to-pool", sharedPool)
	g1.write(t, disk1)
	g1.quiesce(t, disk1)
	h1.assertHolds(t, "db", g1.History(disk1))
	h1.assertHolds(t, "db", second)
	g1.detach(t, h1.at, d)
	ctl(t, h1.at, "volume", "delete", "db")
	h1.finish(t, g1, "vda", "share1-vda")
	h2.finish(t, g2, "vda", "share2-vda")
}

func (s *packagedSite) testDrain(t *testing.T) {
	h1, h2 := s.hosts[0], s.hosts[1]
	g1, g2 := h1.start(t, "drained1"), h2.start(t, "drained2")
	off := h2.define(t, "drained3")
	ctl(t, s.admin, "pool", "drain", localPool, "--to", otherPool, "--parallel", "2")
	for _, v := range get[[]api.Volume](t, s.admin, "volumes", "volume", "list") {
		if v.Location.Pool == localPool {
			t.Errorf("volume %s is still in the pool", v.Name)
		}
	}
	ctl(t, h2.at, "instance", "start", off.Name)
	h1.finish(t, g1, "vda", "drained1-vda")
	h2.finish(t, g2, "vda", "drained2-vda")
	h2.finish(t, off, "vda", "drained3-vda")
}

func (s *packagedSite) testShelve(t *testing.T) {
	h1, h2 := s.hosts[0], s.hosts[1]
	const dir = "/srv/storage/" + sharedPool
	boot := lab.Disk{Volume: lab.Volume{Path: filepath.Join(dir, "web-vda"), Format: "raw"}, Serial: "root"}
	here := boot.Volume
	here.Path = h1.Path(here.Path)
	if err := lab.MakeBootVolume(t.Context(), here, lab.BootVolumeBytes, "web"); err != nil {
		t.Fatal(err)
	}
	data := lab.Disk{
		Volume: lab.Volume{Path: filepath.Join(dir, "web-vdb"), Format: "raw"}, Serial: "data",
		Seed: 50, Fill: lab.Fill{Seed: 4711, Percent: 30},
	}
	h1.image(t, data)
	g := h1.adopt(t, sharedPool, lab.GuestConfig{Name: "web", UEFI: true, Disks: []lab.Disk{boot, data}})
	ctl(t, s.admin, "instance", "start", "web")
	assertBooted(t, g, "web")
	g.write(t, "vdb")
	ctl(t, s.admin, "instance", "shelve", "web")
	h1.assertHolds(t, "web-vdb", g.History("vdb"))
	ctl(t, s.admin, "instance", "unshelve", "web", "--host", h2.Name)
	there := &guest{Guest: g.At(h2.libvirt), disks: g.disks}
	assertBooted(t, there, "web")
	refuses(t, h1.at, api.CodeNotYourHost, "instance", "unshelve", "web")
	h2.finish(t, there, "vdb", "web-vdb")
}
