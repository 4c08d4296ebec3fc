// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"regexp"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// The how-tos of what happens to a site: an upgrade, a lost registry, a lost host.

func (s *library) upgrade(t *testing.T, p *page) {
	d := s.slowDrain(t, "new", "slow")
	s.atRegistry(p)
	sh(t, s.registry, "cp "+sources+"/*.deb "+certificates)
	p.Words["D"] = d
	p.does(t, "volferryctl --socket /run/volferry/registry.sock status", "apt install ./volferry-registry_*.deb")
	s.waitForHosts(t)
	b := p.next(t, "apt install ./volferryd_*.deb")
	for _, h := range s.hosts {
		p.Shell = shellIn(h.Machine, sources)
		if err := p.Do(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	s.atRegistry(p)
	s.waitForHosts(t)
	p.does(t, "volferryctl --socket /run/volferry/registry.sock host list")
	for _, h := range s.hosts {
		if version := sh(t, h.Machine, "dpkg-query --show --showformat '${Version}' volferryd"); version == olderVersion {
			t.Errorf("host %s still has %s", h.Name, version)
		}
	}
	ctl(t, s.admin, "drain", "stop", d)
	s.finishMoves(t)
}

// The commands by which the page stops and starts the registry.
const (
	stopRegistry  = "systemctl stop volferry-registry.socket volferry-registry-tls.socket volferry-registry-metrics.socket volferry-registry.service"
	startRegistry = "systemctl start volferry-registry.service"
)

func (s *library) backUpTheRegistry(t *testing.T, p *page) {
	s.atRegistry(p)
	p.does(t, "install -d -m 0700")
	s.goOn(t, "after-backup")
	before := map[*siteHost]string{s.hv1: s.hv1.epoch(t), s.hv2: s.hv2.epoch(t)}
	p.does(t, stopRegistry, "mkdir -m 0700", startRegistry)
	s.readOnly(t)
	sh(t, s.registry, stopRegistry)
	p.does(t, "runuser -u volferry-registry -- volferry-registry accept-restore")
	sh(t, s.registry, startRegistry)
	for h, epoch := range before {
		h.isBack(t, epoch)
	}
}

// goOn has the hosts hear what a backup does not have.
func (s *library) goOn(t *testing.T, volume string) {
	t.Helper()
	for _, h := range s.hosts {
		ctl(t, h.at, "volume", "create", volume+"-"+h.Name, "--size", "1MiB", "--pool", "fast")
	}
	s.waitForHosts(t)
}

// readOnly returns when the registry has found out that it is from a backup.
func (s *library) readOnly(t *testing.T) {
	t.Helper()
	eventually(t, "the registry is read-only", func() bool {
		out, _ := s.admin.Ctl(t.Context(), "status")
		return strings.Contains(out, "read-only")
	})
}

// epoch is that of a host that takes part, else empty.
func (h *siteHost) epoch(t *testing.T) string {
	t.Helper()
	out, _ := h.at.Ctl(t.Context(), "status")
	if m := regexp.MustCompile(`(?m)^epoch: +ok: (\d+)`).FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return ""
}

// isBack returns when a host takes part under another epoch than before.
func (h *siteHost) isBack(t *testing.T, before string) {
	t.Helper()
	eventually(t, "host "+h.Name+" is back", func() bool {
		now := h.epoch(t)
		return now != "" && now != before
	})
}

func (s *library) loseAHost(t *testing.T, p *page) {
	s.atRegistry(p)
	p.Names = []string{"hv3", "hv2"}
	s.moveElsewhere(t)
	ctl(t, s.hv2.at, "volume", "attach", "db-data", "db")
	p.Words["M"] = strings.TrimSpace(ctl(t, s.hv2.at, "volume", "migrate", "db-vda", "--to-pool", "nfs", "--bandwidth", "256KiB/s", "--no-wait"))
	if err := s.hv2.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the registry misses the host", func() bool {
		out, err := s.admin.Ctl(t.Context(), "host", "list")
		return err == nil && strings.Contains(out, "suspect")
	})
	p.does(t, "volferryctl --socket /run/volferry/registry.sock host fence hv3")
	p.Words["A"] = s.attachedAt(t, "db-data")
	p.does(t, "export VOLFERRY_SOCKET")
	if a := get[[]api.Attachment](t, s.admin, "attachments", "attachment", "list", "--volume", "db-data"); len(a) != 1 || a[0].State != api.AttachmentAttached {
		t.Errorf("attachments of the volume: %+v, want the new one", a)
	}
	p.does(t, "volferryctl migration abandon M")

	const backup = "/var/backups/volferry/second.db"
	before := s.hv1.epoch(t)
	sh(t, s.registry, "runuser -u volferry-registry -- volferry-registry backup "+backup)
	ctl(t, s.hv1.at, "volume", "create", "later", "--size", "1MiB", "--pool", "fast")
	ctl(t, s.hv1.at, "doctor") // which reports
	sh(t, s.registry, stopRegistry+`
		rm /var/lib/volferry-registry/registry.db*
		install -o volferry-registry -g volferry-registry -m 0600 `+backup+" /var/lib/volferry-registry/registry.db\n"+startRegistry)
	s.readOnly(t)
	sh(t, s.registry, stopRegistry)
	p.does(t, "runuser -u volferry-registry -- volferry-registry accept-restore")
	sh(t, s.registry, startRegistry)
	s.hv1.isBack(t, before)
}

// moveElsewhere gives the second host an instance with a volume.
func (s *library) moveElsewhere(t *testing.T) {
	t.Helper()
	sh(t, s.hv2.Machine, `
		qemu-img create -q -f raw /srv/slow/db.raw 64M
		dd if=/dev/urandom of=/srv/slow/db.raw bs=1M count=64 conv=notrunc status=none
		virsh pool-refresh slow
		cat >/tmp/db.xml <<'END'
`+domainXML("db", diskXML(rawFile("/srv/slow/db.raw"), "vda"))+`END
		virsh define /tmp/db.xml
		volferryctl instance adopt db`)
}
