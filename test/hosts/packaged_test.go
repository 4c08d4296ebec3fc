// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"path/filepath"
	"slices"
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

// sources is where a machine has what make packages left in dist/.
const sources = "/srv/sources"

// packages are the Debian packages of these names as make packages built them.
func packages(t *testing.T, names ...string) []string {
	t.Helper()
	return inDist(t, debs, names...)
}

// inDist are the packages of these names in dist/. The pattern is how their files go on.
func inDist(t *testing.T, pattern string, names ...string) []string {
	t.Helper()
	root, err := site.Root()
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, name := range names {
		found, err := filepath.Glob(filepath.Join(root, "dist", name+pattern))
		if err != nil || len(found) != 1 {
			t.Fatalf("there is not one package %s in dist/: %v, %v; run make packages first", name, found, err)
		}
		files = append(files, found...)
	}
	return files
}

const (
	debs = "_*.deb"
	rpms = "-[0-9]*.rpm"
)

// sh runs a shell script in a machine, which must succeed, and returns what it printed.
func sh(t *testing.T, m *machine.Machine, script string) string {
	t.Helper()
	out, err := m.Script(t.Context(), script)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// newOneHost is a machine with packages in dist/ of its sources, none of them installed.
func newOneHost(t *testing.T, pattern string) *siteHost {
	t.Helper()
	lab.Require(t)
	m := machine.Start(t, machine.Config{Name: "hv1"})
	if err := m.CopyIn(t.Context(), sources+"/dist", inDist(t, pattern, "volferryd", "volferry-registry", "volferryctl")...); err != nil {
		t.Fatal(err)
	}
	return &siteHost{Machine: m, test: t, at: site.In(m, daemonSocket), libvirt: m.Libvirt()}
}

// installedHost is a machine with all packages installed.
func installedHost(t *testing.T) *machine.Machine {
	t.Helper()
	lab.Require(t)
	m := machine.Start(t, machine.Config{Name: "hv1"})
	if err := m.InstallDebs(t.Context(), packages(t, "volferryd", "volferry-registry", "volferryctl")...); err != nil {
		t.Fatal(err)
	}
	return m
}

// assertActive claims that the units of both daemons are active.
func assertActive(t *testing.T, m *machine.Machine) {
	t.Helper()
	for _, unit := range []string{"volferryd.socket", "volferryd.service", "volferry-registry.socket", "volferry-registry.service"} {
		if _, err := m.Exec(t.Context(), "systemctl", "is-active", unit); err != nil {
			t.Errorf("%s is not active: %v", unit, err)
		}
	}
}

// A host with libvirt as Debian configures it, and README.md as it is: its commands
// install the packages, whose units run, and move a volume under its guest.
func TestReadmeOnOneHost(t *testing.T) {
	t.Parallel()
	h := newOneHost(t, debs)
	for _, pool := range []string{"slow", "fast"} {
		h.pool(t, pool, "/srv/"+pool)
	}
	p := openPage(t, "README.md", &site.Reader{At: h.at})
	var install []string
	for _, b := range p.section(t, "Install") {
		install = append(install, b.Commands...)
	}
	// What comes before, and the libvirt that the page has installed then, is there.
	built := slices.Index(install, "make packages")
	if built < 0 {
		t.Fatalf("the page has no make packages among its commands: %q", install)
	}
	for _, line := range install[built+1:] {
		t.Logf("%s\n%s", line, sh(t, h.Machine, "cd "+sources+"; "+line))
	}
	assertActive(t, h.Machine)

	d := lab.Disk{Volume: lab.Volume{Path: "/srv/slow/web1.raw", Format: "raw"}, Seed: 1, Fill: lab.Fill{Seed: 4711, Percent: 30}}
	h.image(t, d)
	if _, err := h.libvirt.Virsh(t.Context(), "pool-refresh", "slow"); err != nil {
		t.Fatal(err)
	}
	writer := startGuest(t, h.libvirt, lab.GuestConfig{Name: "web1", Disks: []lab.Disk{d}})
	for _, b := range p.section(t, "Use") {
		for _, line := range b.Commands {
			t.Logf("%s\n%s", line, sh(t, h.Machine, line))
		}
	}
	if v := get[api.Volume](t, h.at, "volume", "volume", "show", "web1-vda"); v.Location.Pool != "fast" {
		t.Errorf("the volume is in pool %s, want it moved to fast", v.Location.Pool)
	}
	h.finish(t, writer, "vda", "web1-vda")
	(&packagedSite{admin: site.In(h.Machine, registrySocket), hosts: []*siteHost{h}}).assertNothingLeft(t)
}

// The rpm packages on a host of systemd: their scripts as rpm runs them, without Debian's
// helpers, the units, a move, an upgrade, and a removal that keeps the state. The machine
// is a Debian, since no repository of an rpm distribution is to be had: what the packages
// depend on is not tested, nor SELinux.
func TestRPMsOnOneHost(t *testing.T) {
	leftToTestHosts(t)
	t.Parallel()
	h := newOneHost(t, rpms)
	sh(t, h.Machine, `
		for helper in deb-systemd-helper deb-systemd-invoke; do
			dpkg-divert --quiet --rename --divert /usr/lib/hidden-$helper /usr/bin/$helper
		done
		rpm --install --nodeps `+sources+`/dist/*.rpm
		systemctl enable --now volferry-registry.socket volferryd.socket volferry-registry.service volferryd.service`)
	assertActive(t, h.Machine)
	for _, pool := range []string{localPool, otherPool} {
		h.pool(t, pool, "/var/lib/libvirt/"+pool)
	}
	t.Log(ctl(t, h.at, "doctor"))
	g := h.start(t, "web1")
	ctl(t, h.at, "volume", "migrate", "web1-vda", "--to-pool", otherPool)
	before := sh(t, h.Machine, "systemctl show --property MainPID --value volferryd.service")
	sh(t, h.Machine, "rpm --upgrade --force --nodeps "+sources+"/dist/*.rpm")
	if now := sh(t, h.Machine, "systemctl show --property MainPID --value volferryd.service"); now == before || now == "0" {
		t.Errorf("after the upgrade the daemon's process is %s, and was %s", now, before)
	}
	assertActive(t, h.Machine)
	h.finish(t, g, "vda", "web1-vda")
	(&packagedSite{admin: site.In(h.Machine, registrySocket), hosts: []*siteHost{h}}).assertNothingLeft(t)

	sh(t, h.Machine, `
		rpm --erase volferryd volferry-registry volferryctl
		test -e /var/lib/volferry/journal.db
		test -e /var/lib/volferry-registry/registry.db
		! test -e /usr/sbin/volferryd
		! systemctl is-active volferryd.service volferryd.socket volferry-registry.service`)
}
