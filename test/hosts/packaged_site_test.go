// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/machine"
	"github.com/volferry/volferry/test/site"
)

// registryName and its address are what the hosts call the machine of the registry.
const (
	registryName    = "registry.example"
	registryAddress = "192.0.2.10"
)

// packagedSite is a machine with the registry and hypervisors, each with the packages
// under their units and Debian's libvirtd, and a network between them.
type packagedSite struct {
	registry *machine.Machine
	admin    site.Caller // at the registry's socket
	hosts    []*siteHost
}

// siteHost is one of the hypervisors.
type siteHost struct {
	*machine.Machine

	test    *testing.T // in whose end the guests are removed
	at      site.Caller
	libvirt *lab.Connection
}

// startPackagedSite makes a site as docs/how-to/install.md and docs/how-to/several-hosts.md
// say. Each host has the pools.
func startPackagedSite(t *testing.T, names ...string) *packagedSite {
	t.Helper()
	s := newPackagedSite(t, []string{"/srv/storage"}, names...)
	s.installRegistry(t)
	for _, h := range s.hosts {
		s.installHost(t, h)
	}
	eventually(t, "the registry has all hosts", func() bool {
		return len(get[[]api.Host](t, s.admin, "hosts", "host", "list")) == len(names)
	})
	return s
}

// newPackagedSite makes the machines of a site, with nothing installed. The directories are
// the same on all hosts.
func newPackagedSite(t *testing.T, shared []string, names ...string) *packagedSite {
	t.Helper()
	lab.Require(t)
	machine.Require(t)
	storage, binds := lab.TempDir(t), map[string]string{}
	for _, dir := range shared {
		binds[dir] = filepath.Join(storage, filepath.Base(dir))
		if err := os.Mkdir(binds[dir], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	known := map[string]string{registryName: registryAddress}
	s := &packagedSite{registry: machine.Start(t, machine.Config{Name: "registry", Hosts: known})}
	s.admin = site.In(s.registry, registrySocket)
	addresses := map[*machine.Machine]string{s.registry: registryAddress + "/24"}
	for i, name := range names {
		m := machine.Start(t, machine.Config{
			Name: name, Binds: binds, Hosts: known,
		})
		addresses[m] = fmt.Sprintf("192.0.2.%d/24", 1+i)
		s.hosts = append(s.hosts, &siteHost{Machine: m, test: t, at: site.In(m, daemonSocket), libvirt: m.Libvirt()})
	}
	machine.Connect(t, addresses)
	return s
}

func (s *packagedSite) installRegistry(t *testing.T) {
	t.Helper()
	if err := s.registry.InstallDebs(t.Context(), packages(t, "volferry-registry", "volferryctl")...); err != nil {
		t.Fatal(err)
	}
	sh(t, s.registry, "runuser -u volferry-registry -- volferry-registry init-ca --server-name "+registryName+" --server-name "+registryAddress)
	sh(t, s.registry, `
		systemctl enable volferry-registry-tls.socket
		systemctl restart volferry-registry.service`)
}

func (s *packagedSite) installHost(t *testing.T, h *siteHost) {
	t.Helper()
	if err := h.InstallDebs(t.Context(), packages(t, "volferryd", "volferryctl")...); err != nil {
		t.Fatal(err)
	}
	sh(t, s.registry, "mkdir -p "+certificates+" && cd "+certificates+" && volferry-registry issue-cert host "+h.Name)
	s.configure(t, h, fmt.Sprintf("registry = \"https://%s:7643\"\nshared_pools = [\"%s\", \"%s\"]\n", registryName, sharedPool, newSharedPool))
	for _, pool := range []string{sharedPool, newSharedPool} {
		h.pool(t, pool, "/srv/storage/"+pool)
	}
	for _, pool := range []string{localPool, otherPool} {
		h.pool(t, pool, "/var/lib/libvirt/"+pool)
	}
	ctl(t, h.at, "pool", "list") // so that the registry knows of them
}

// certificates is where the machine of the registry issues them.
const certificates = "/srv/certificates"

// configure brings a host its certificate, and these lines to its configuration.
func (s *packagedSite) configure(t *testing.T, h *siteHost, lines string) {
	t.Helper()
	if err := h.CopyIn(t.Context(), "/etc/volferry", s.registry.Path(filepath.Join(certificates, h.Name))); err != nil {
		t.Fatal(err)
	}
	sh(t, h.Machine, fmt.Sprintf(`
		rm -rf /etc/volferry/tls
		mv /etc/volferry/%s /etc/volferry/tls
		cat >>/etc/volferry/volferryd.toml <<'END'
%sEND
		volferryd check-config
		systemctl restart volferryd`, h.Name, lines))
}

func (h *siteHost) pool(t *testing.T, name, dir string) {
	t.Helper()
	if err := h.libvirt.DirPool(t.Context(), name, dir); err != nil {
		t.Fatal(err)
	}
	if _, err := h.libvirt.Virsh(t.Context(), "pool-autostart", name); err != nil {
		t.Fatal(err)
	}
}

// define defines and adopts an instance that is off, with a disk in the pool local that
// its writer has.
func (h *siteHost) define(t *testing.T, name string) *guest {
	t.Helper()
	d := lab.Disk{Volume: lab.Volume{Path: filepath.Join("/var/lib/libvirt", localPool, name+"-vda"), Format: "raw"}, Seed: 7, Fill: lab.Fill{Seed: 4711, Percent: 30}}
	h.image(t, d)
	return h.adopt(t, localPool, lab.GuestConfig{Name: name, Disks: []lab.Disk{d}})
}

// image makes the image of a disk, whose path is one of the host.
func (h *siteHost) image(t *testing.T, d lab.Disk) {
	t.Helper()
	v := d.Volume
	v.Path = h.Path(v.Path)
	if err := lab.MakeVolume(t.Context(), v, volumeBytes, d.Fill); err != nil {
		t.Fatal(err)
	}
}

// adopt defines an instance whose disks are in a pool and has Volferry adopt it.
func (h *siteHost) adopt(t *testing.T, pool string, cfg lab.GuestConfig) *guest {
	t.Helper()
	if _, err := h.libvirt.Virsh(t.Context(), "pool-refresh", pool); err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, h.test, h.libvirt, cfg) // it stays an instance, of which others take note, until the site ends
	ctl(t, h.at, "instance", "adopt", cfg.Name)
	return g
}

// start starts an instance that writes to its vda from then on.
func (h *siteHost) start(t *testing.T, name string) *guest {
	t.Helper()
	g := h.define(t, name)
	ctl(t, h.at, "instance", "start", name)
	g.write(t, "vda")
	return g
}

// finish claims that the guest, which a host has, still writes and has lost nothing: it
// is stopped, and the volume holds all that its writer was told is there.
func (h *siteHost) finish(t *testing.T, g *guest, name, volume string, opts ...lab.CheckOption) {
	t.Helper()
	g.write(t, name)
	g.quiesce(t, name)
	h.assertHolds(t, volume, g.History(name), opts...)
	ctl(t, h.at, "instance", "stop", g.Name, "--force")
}

// assertHolds claims that a volume, which nobody writes to, holds what was written.
func (h *siteHost) assertHolds(t *testing.T, volume string, written *lab.History, opts ...lab.CheckOption) {
	t.Helper()
	v := get[api.Volume](t, h.at, "volume", "volume", "show", volume)
	r, err := lab.Check(t.Context(), lab.Volume{Path: h.Path(v.Location.Path), Format: string(v.Location.Format)}, written, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err != nil || r.Acked == 0 {
		t.Errorf("volume %s at %s: %d operations acknowledged, %v", volume, v.Location.Path, r.Acked, err)
	}
	t.Logf("volume %s at %s: %d of %d acknowledged operations found, %d blocks wrong of %d", volume, v.Location.Path, r.Found, r.Acked, r.Bad, r.Blocks)
}

// assertNothingLeft claims that no operation has left anything on a host, and that all
// units are as they should be. The guard of an instance that another host has stays: it
// refuses a copy of its definition.
func (s *packagedSite) assertNothingLeft(t *testing.T) {
	t.Helper()
	const guards = "/var/lib/volferry/guards"
	instances := get[[]api.Instance](t, s.admin, "instances", "instance", "list")
	for _, h := range s.hosts {
		left, err := h.libvirt.Leftovers(t.Context(), "/var/lib/volferry/overlays", guards, "/var/lib/volferry/saves")
		left = slices.DeleteFunc(left, func(found string) bool {
			return slices.ContainsFunc(instances, func(i api.Instance) bool {
				return i.Host != h.Name && found == "file "+h.Path(filepath.Join(guards, i.ID))
			})
		})
		if err != nil || len(left) > 0 {
			t.Errorf("left on host %s: %v, %v", h.Name, left, err)
		}
		if state, err := h.Exec(t.Context(), "systemctl", "is-system-running"); err != nil {
			t.Errorf("host %s is %s: %v", h.Name, state, err)
		}
		if ops := get[[]api.Op](t, h.at, "ops", "op", "list"); len(ops) > 0 {
			t.Errorf("host %s has open ops: %+v", h.Name, ops)
		}
	}
}
