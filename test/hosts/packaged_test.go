// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/machine"
	"github.com/volferry/volferry/test/site"
)

// daemonSocket and registrySocket are the sockets of the packages' units.
const (
	daemonSocket   = "/run/volferry/volferryd.sock"
	registrySocket = "/run/volferry/registry.sock"
)

// packages are the Debian packages of these names as make packages built them.
func packages(t *testing.T, names ...string) []string {
	t.Helper()
	root, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, name := range names {
		found, err := filepath.Glob(filepath.Join(root, "dist", name+"_*.deb"))
		if err != nil || len(found) != 1 {
			t.Fatalf("there is not one package %s in dist/: %v, %v; run make packages first", name, found, err)
		}
		files = append(files, found...)
	}
	return files
}

// sh runs a shell script in a machine, which must succeed, and returns what it printed.
func sh(t *testing.T, m *machine.Machine, script string) string {
	t.Helper()
	out, err := m.Script(t.Context(), script)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// On a host with the Debian packages and nothing configured the units run, and a
// volume moves under its guest.
func TestPackagesOnOneHost(t *testing.T) {
	leftToTestHosts(t)
	t.Parallel()
	lab.Require(t)
	m := machine.Start(t, machine.Config{Name: "hv1"})
	if err := m.InstallDebs(t.Context(), packages(t, "volferryd", "volferry-registry", "volferryctl")...); err != nil {
		t.Fatal(err)
	}
	for _, unit := range []string{"libvirtd.socket", "volferryd.socket", "volferryd.service", "volferry-registry.socket", "volferry-registry.service"} {
		if _, err := m.Exec(t.Context(), "systemctl", "is-active", unit); err != nil {
			t.Errorf("after the installation %s is not active: %v", unit, err)
		}
	}
	at, libvirt := site.In(m, daemonSocket), m.Libvirt()
	for _, pool := range []string{"old", "new"} {
		if err := libvirt.DirPool(t.Context(), pool, "/var/lib/libvirt/"+pool); err != nil {
			t.Fatal(err)
		}
	}
	t.Log(ctl(t, at, "doctor"))

	data := lab.Disk{Volume: lab.Volume{Path: "/var/lib/libvirt/old/g1-vda", Format: "raw"}, Seed: 1, Fill: lab.Fill{Seed: 4711, Percent: 30}}
	here := data.Volume
	here.Path = m.Path(here.Path)
	if err := lab.MakeVolume(t.Context(), here, volumeBytes, data.Fill); err != nil {
		t.Fatal(err)
	}
	g, err := libvirt.DefineGuest(t.Context(), lab.GuestConfig{Name: "g1", Disks: []lab.Disk{data}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	writer := &guest{Guest: g}
	writer.write(t, "vda")
	ctl(t, at, "instance", "adopt", "g1")
	ctl(t, at, "volume", "migrate", "g1-vda", "--to-pool", "new")
	writer.write(t, "vda")
	writer.quiesce(t, "vda")

	v := get[api.Volume](t, at, "volume", "volume", "show", "g1-vda")
	if v.Location.Pool != "new" {
		t.Errorf("the volume is in pool %s, want it moved to new", v.Location.Pool)
	}
	v.Location.Path = m.Path(v.Location.Path)
	assertHolds(t, disk{Volume: v}, v.Location, g.History("vda"))
	left, err := libvirt.Leftovers(t.Context(), "/var/lib/volferry/overlays", "/var/lib/volferry/guards")
	if err != nil || len(left) > 0 {
		t.Errorf("left on the host: %v, %v", left, err)
	}
	if state := sh(t, m, "systemctl is-system-running"); state != "running" {
		t.Errorf("the machine is %s", state)
	}
}
