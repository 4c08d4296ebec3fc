// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/site"
)

// An instance leaves its host for the shelf and comes back on another one. Whatever
// is killed meanwhile, and whoever asks at the same time, one host has it or none.
func TestInstanceIsShelvedOnOneHostAndUnshelvedOnAnother(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "hv1", "hv2")
	t.Run("with all that it wrote", c.testShelfKeepsWrites)
	t.Run("of two hosts that ask at once one gets it", c.testUnshelveRace)
	t.Run("daemons killed in the middle", c.testDaemonsDie)
	t.Run("registry killed in the middle", c.testRegistryDies)
}

// mobile is an adopted instance on the first host, whose volumes all hosts see.
func (c *cluster) mobile(t *testing.T, name string) *guest {
	t.Helper()
	g := c.bootable(t, c.Hosts[0], name, filepath.Join(c.Shared, "pool-"+sharedPool), name)
	ctl(t, c.Hosts[0].Caller, "instance", "adopt", name)
	return g
}

func (c *cluster) testShelfKeepsWrites(t *testing.T) {
	admin, h1, h2 := c.Registry.Caller(), c.Hosts[0], c.Hosts[1]
	g := c.mobile(t, "web")
	ctl(t, admin, "instance", "start", g.Name)
	assertBooted(t, g, "web")
	g.write(t, "vdb")
	copied := filepath.Join(t.TempDir(), "web.xml")
	xml, err := h1.Libvirtd.Virsh(t.Context(), "dumpxml", g.Name, "--inactive")
	if err := errors.Join(err, os.WriteFile(copied, []byte(xml), 0o600)); err != nil {
		t.Fatal(err)
	}

	ctl(t, admin, "instance", "shelve", g.Name)
	c.assertOnShelf(t, g)
	d := disk{Volume: get[api.Volume](t, admin, "volume", "volume", "show", g.Name+"-vdb")}
	if d.Status != api.VolumeInUse || len(d.Attachments) != 1 || d.Attachments[0].State != api.AttachmentAttached {
		t.Errorf("the data volume of a shelved instance is %+v", d.Volume)
	}
	assertHolds(t, d, d.Location, g.History("vdb"))

	ctl(t, admin, "instance", "unshelve", g.Name, "--host", h2.Name)
	c.assertOnlyAt(t, g, h2)
	refuses(t, h1.Caller, api.CodeNotYourHost, "instance", "unshelve", g.Name)
	there := &guest{Guest: g.At(h2.Libvirtd.Connection), host: h2, disks: g.disks}
	assertBooted(t, there, "web")
	there.write(t, "vdb")

	// Somebody brings its old definition back.
	if _, err := h1.Libvirtd.Virsh(t.Context(), "define", copied); err != nil {
		t.Fatal(err)
	}
	_, err = h1.Libvirtd.Virsh(t.Context(), "start", g.Name)
	if err == nil || !strings.Contains(err.Error(), "volferry: ") || !strings.Contains(err.Error(), "is shelved, or another host's") {
		t.Errorf("virsh start of a copy on the host that had it: %v", err)
	}
	there.quiesce(t, "vdb")
	assertHolds(t, d, d.Location, there.History("vdb"))
	ctl(t, admin, "instance", "stop", g.Name, "--force")
}

func (c *cluster) testUnshelveRace(t *testing.T) {
	leftToTestHosts(t)
	g := c.mobile(t, "race")
	ctl(t, c.Registry.Caller(), "instance", "shelve", g.Name)
	won := map[string]int{}
	for range 4 {
		ends := make([]chan error, len(c.Hosts))
		for i, h := range c.Hosts {
			ends[i] = inBackground(t, c.Registry.Caller(), "instance", "unshelve", g.Name, "--host", h.Name)
		}
		var winner *site.Host
		for i, h := range c.Hosts {
			switch err := <-ends[i]; {
			case err == nil && winner == nil:
				winner = h
			case err == nil:
				t.Fatalf("both hosts have instance %s, they say", g.Name)
			case !hasCode(err, api.CodeConflict, api.CodeStateForbidden, api.CodeNotYourHost): // while, before or after the other did
				t.Errorf("the host that did not get it: %v", err)
			}
		}
		if winner == nil {
			t.Fatal("no host has got the instance")
		}
		won[winner.Name]++
		c.assertOnlyAt(t, g, winner)
		ctl(t, c.Registry.Caller(), "instance", "shelve", g.Name, "--force")
		c.assertOnShelf(t, g)
	}
	t.Logf("won by: %v", won)
}

// One host's daemon dies in the shelve, the other one's in the unshelve.
func (c *cluster) testDaemonsDie(t *testing.T) {
	leftToTestHosts(t)
	g := c.mobile(t, "mortal")
	from, to := c.Hosts[0], c.Hosts[1]
	for _, points := range [][2]string{
		{"instance_shelve.store.after_do", "instance_unshelve.claim.after_do"},
		{"instance_shelve.undefine.after_started", "instance_unshelve.define.after_do"},
		{"instance_shelve.undefine.after_do", "instance_unshelve.complete.after_do"},
	} {
		c.diesAt(t, from, points[0], "instance", "shelve", g.Name, "--force")
		c.assertOnShelf(t, g)
		c.diesAt(t, to, points[1], "instance", "unshelve", g.Name, "--host", to.Name)
		c.assertOnlyAt(t, g, to)
		from, to = to, from
	}
	ctl(t, c.Registry.Caller(), "instance", "shelve", g.Name, "--force")
}

// diesAt calls volferryctl at the registry. The daemon of the host is killed at this
// point and started again; the command has to end well all the same.
func (c *cluster) diesAt(t *testing.T, h *site.Host, point string, args ...string) {
	t.Helper()
	restart(t, h, "VOLFERRY_FAULT="+point+"=kill")
	ended := inBackground(t, c.Registry.Caller(), args...)
	if err := h.DaemonDied(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatalf("killed at %s: %v", point, err)
	}
}

func restart(t *testing.T, h *site.Host, env ...string) {
	t.Helper()
	h.KillDaemon()
	if err := h.StartDaemon(t.Context(), env...); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) testRegistryDies(t *testing.T) {
	leftToTestHosts(t)
	g := c.mobile(t, "orphan")
	h := c.Hosts[0]
	c.registryDiesAt(t, h, "instance_shelve.store.after_started", "instance", "shelve", g.Name)
	c.assertOnShelf(t, g)
	c.registryDiesAt(t, h, "instance_unshelve.define.after_started", "instance", "unshelve", g.Name)
	c.assertOnlyAt(t, g, h)
	// At the host: to a registry that has just been started it may not have come back yet.
	ctl(t, h.Caller, "instance", "shelve", g.Name, "--force")
}

// registryDiesAt calls volferryctl at a host, and kills the registry soon after the
// daemon has passed the point. The daemon waits for it.
func (c *cluster) registryDiesAt(t *testing.T, h *site.Host, point string, args ...string) {
	t.Helper()
	passed := filepath.Join(t.TempDir(), "points")
	restart(t, h, "VOLFERRY_FAULT_LOG="+passed)
	ended := inBackground(t, h.Caller, args...)
	eventually(t, "the daemon passes "+point, func() bool {
		text, err := os.ReadFile(passed)
		return err == nil && strings.Contains(string(text), point+"\n")
	})
	c.Registry.Kill()
	if err := c.Registry.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatalf("registry killed after %s: %v", point, err)
	}
}

// inBackground runs volferryctl -o json beside the test.
func inBackground(t *testing.T, at site.Caller, args ...string) chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := at.Ctl(t.Context(), append([]string{"-o", "json", "--progress", "none"}, args...)...)
		ended <- err
	}()
	return ended
}

// hasCode reports whether volferryctl -o json has ended with one of the codes.
func hasCode(err error, codes ...api.Code) bool {
	for _, code := range codes {
		if strings.Contains(err.Error(), `"code":"`+string(code)+`"`) {
			return true
		}
	}
	return false
}

// assertOnShelf claims that no host has the instance, and that it lost nothing.
func (c *cluster) assertOnShelf(t *testing.T, g *guest) {
	t.Helper()
	inst := get[api.Instance](t, c.Registry.Caller(), "instance", "instance", "show", g.Name)
	if inst.State != api.InstanceShelvedOffloaded || inst.Host != "" {
		t.Errorf("instance %s is %s on host %q, want it on the shelf", g.Name, inst.State, inst.Host)
	}
	for _, slot := range inst.BlockDeviceMappings {
		if slot.VolumeID == nil || slot.AttachmentID == nil {
			t.Errorf("slot %s of instance %s has lost its volume", slot.Device, g.Name)
		}
	}
	for _, h := range c.Hosts {
		assertNoDomain(t, h, g)
	}
	for _, d := range g.disks {
		if _, err := os.Stat(d.Path); err != nil {
			t.Error(err)
		}
	}
}

// assertOnlyAt claims that the instance runs on this host, and that no other has it.
func (c *cluster) assertOnlyAt(t *testing.T, g *guest, at *site.Host) {
	t.Helper()
	inst := get[api.Instance](t, c.Registry.Caller(), "instance", "instance", "show", g.Name)
	if inst.State != api.InstanceRunning || inst.Host != at.Name {
		t.Errorf("instance %s is %s on host %q, want it running on %s", g.Name, inst.State, inst.Host, at.Name)
	}
	for _, h := range c.Hosts {
		if h != at {
			assertNoDomain(t, h, g)
		}
	}
	if state, err := at.Libvirtd.Virsh(t.Context(), "domstate", g.Name); err != nil || strings.TrimSpace(state) != "running" {
		t.Errorf("domain %s on host %s is %s (%v)", g.Name, at.Name, state, err)
	}
}

// assertNoDomain claims that a host has no domain of the guest.
func assertNoDomain(t *testing.T, h *site.Host, g *guest) {
	t.Helper()
	out, err := h.Libvirtd.Virsh(t.Context(), "list", "--all", "--uuid", "--name")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, g.UUID) {
		t.Errorf("host %s has domain %s", h.Name, g.Name)
	}
}
