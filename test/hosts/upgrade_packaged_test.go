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

// debsIn are the Debian packages in a directory.
func debsIn(t *testing.T, dir string) []string {
	t.Helper()
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 3 {
		t.Fatalf("packages in %s = %v (%v), want three", dir, debs, err)
	}
	return debs
}

// dpkg upgrades a host with a registry on it while a drain moves a volume under a running
// guest. Then the older package of the registry is installed: its registry continues with the
// database unless the schema has grown, and then the newer package continues.
func TestUpgradeOfThePackagesInTheMiddleOfADrain(t *testing.T) {
	leftToTestUpgrade(t)
	lab.Require(t)
	machine.Require(t)
	commit, err := site.Base(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	grew, err := site.SchemaGrew(t.Context(), commit)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := site.PackagesAt(t.Context(), commit)
	if err != nil {
		t.Fatal(err)
	}
	before, now := debsIn(t, dir), packages(t, "volferryd", "volferry-registry", "volferryctl")
	m := machine.Start(t, machine.Config{Name: "hv1"})
	install := func(debs ...string) {
		t.Helper()
		if err := m.InstallDebs(t.Context(), debs...); err != nil {
			t.Fatal(err)
		}
	}
	install(before...)
	p := newPackagedHost(t, m)
	ctl(t, p.admin, "pool", "drain", "old", "--to", "new", "--bandwidth", "1MiB/s", "--no-wait")
	eventually(t, "the volume is being copied", func() bool { return p.copied(t) > 0 })
	sh(t, m, `cat >/tmp/asks <<'END'
while [ ! -e /tmp/enough ]; do
	for s in volferryd registry; do volferryctl --socket /run/volferry/$s.sock volume list >/dev/null 2>>/tmp/lost || echo $s >>/tmp/lost; done
	echo >>/tmp/asked
done
END
systemd-run --quiet --unit=asks sh /tmp/asks`)
	install(now...)
	if done := p.copied(t); done >= volumeBytes {
		t.Fatalf("%d bytes were copied before the upgrade was through: it proves nothing", done)
	}
	sh(t, m, "touch /tmp/enough; while systemctl is-active --quiet asks; do :; done")
	if lost := sh(t, m, "cat /tmp/lost"); lost != "" {
		t.Errorf("requests were lost in the upgrade: %s", lost)
	}
	t.Logf("rounds of requests through the upgrade: %s", sh(t, m, "wc -l </tmp/asked"))
	eventually(t, "the drain is over", func() bool { return p.drained(t) })
	p.write(t, "vda")

	registry := "volferry-registry"
	for _, deb := range before {
		if strings.HasPrefix(filepath.Base(deb), registry) {
			_ = m.InstallDebs(t.Context(), deb) // dpkg may say that the service does not start
		}
	}
	if grew {
		eventually(t, "the older registry says why it does not start", func() bool {
			return strings.Contains(sh(t, m, "journalctl -u "+registry), "it was written by a newer Volferry")
		})
	} else if hosts := get[[]api.Host](t, p.admin, "hosts", "host", "list"); len(hosts) != 1 {
		t.Errorf("the older registry has the hosts %v, want one", hosts)
	}
	install(packages(t, registry)...)
	sh(t, m, "systemctl stop "+registry+".service; systemctl reset-failed '"+registry+"*'; systemctl start "+registry+".socket "+registry+".service")
	if hosts := get[[]api.Host](t, p.admin, "hosts", "host", "list"); len(hosts) != 1 {
		t.Errorf("hosts = %v, want that of before", hosts)
	}
	p.refusesPurge(t)
	install(packages(t, "volferryd")...)
	sh(t, m, "systemctl start volferryd.socket volferryd")
	eventually(t, "the move is over", func() bool {
		return len(get[[]api.Migration](t, p.at, "migrations", "migration", "list")) == 0
	})
	p.write(t, "vda")
	p.quiesce(t, "vda")
	v := get[api.Volume](t, p.at, "volume", "volume", "show", "g1-vda")
	v.Location.Path = m.Path(v.Location.Path)
	assertHolds(t, disk{Volume: v}, v.Location, p.History("vda"))
}

// packagedHost is a machine with all packages, and a guest whose volume is in the pool old.
type packagedHost struct {
	*guest
	m         *machine.Machine
	at, admin site.Caller
}

func newPackagedHost(t *testing.T, m *machine.Machine) *packagedHost {
	t.Helper()
	p := &packagedHost{m: m, at: site.In(m, daemonSocket), admin: site.In(m, registrySocket)}
	libvirt := m.Libvirt()
	for _, pool := range []string{"old", "new"} {
		if err := libvirt.DirPool(t.Context(), pool, "/var/lib/libvirt/"+pool); err != nil {
			t.Fatal(err)
		}
	}
	data := lab.Disk{Volume: lab.Volume{Path: "/var/lib/libvirt/old/g1-vda", Format: "raw"}, Seed: 1, Fill: lab.Fill{Seed: 4711, Percent: 90}}
	here := data.Volume
	here.Path = m.Path(here.Path)
	if err := lab.MakeVolume(t.Context(), here, volumeBytes, data.Fill); err != nil {
		t.Fatal(err)
	}
	p.guest = startGuest(t, libvirt, lab.GuestConfig{Name: "g1", Disks: []lab.Disk{data}})
	ctl(t, p.at, "pool", "list")
	ctl(t, p.at, "instance", "adopt", "g1")
	return p
}

// copied is how many bytes of the guest's volume were copied in the move that is open, as
// the daemon says.
func (p *packagedHost) copied(t *testing.T) int64 {
	t.Helper()
	for _, m := range get[[]api.Migration](t, p.at, "migrations", "migration", "list") {
		return m.BytesDone
	}
	return 0
}

// drained reports whether the one drain is over; then it has moved all.
func (p *packagedHost) drained(t *testing.T) bool {
	t.Helper()
	d := get[[]api.Drain](t, p.admin, "drains", "drain", "list")[0]
	if d.State != api.DrainDone {
		return false
	}
	for _, v := range d.Volumes {
		if v.State != api.DrainVolumeMoved {
			t.Errorf("volume %s is %s (%v), want it moved", v.VolumeName, v.State, v.Error)
		}
	}
	return true
}

// refusesPurge claims that the daemon's package keeps its state where a move is open: when it is
// removed, and when it is purged.
func (p *packagedHost) refusesPurge(t *testing.T) {
	t.Helper()
	ctl(t, p.at, "volume", "migrate", "g1-vda", "--to-pool", "old", "--bandwidth", "1MiB/s", "--no-wait")
	eventually(t, "the volume is being copied", func() bool { return p.copied(t) > 0 })
	sh(t, p.m, "dpkg --remove volferryd")
	if _, err := p.m.Script(t.Context(), "dpkg --purge volferryd"); err == nil || !strings.Contains(err.Error(), "/var/lib/volferry is kept") {
		t.Errorf("dpkg --purge with an open move: %v, want a refusal", err)
	}
	sh(t, p.m, "test -s /var/lib/volferry/journal.db && test -n \"$(ls /var/lib/volferry/overlays)\"")
}
