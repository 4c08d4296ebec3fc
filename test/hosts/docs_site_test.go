// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/machine"
	"github.com/volferry/volferry/test/site"
)

// sharedOnPages are the pools of the pages that several hosts see.
var sharedOnPages = []string{"fast", "slow", "nfs", "nfs2"}

// library is a site on which how-tos are followed, one after the other. It begins with the
// packages of an older version on its machines, and nothing else.
type library struct {
	*packagedSite

	hv1, hv2 *siteHost
	web1     *guest
}

// A site does what the how-tos say, word for word, from its certificates to the loss of a
// host and of its registry. What a page cannot say, such as an id, is put into its place,
// and what is not run is in the log with the reason.
func TestHowTosWordForWord(t *testing.T) {
	leftToTestHosts(t)
	t.Parallel()
	s := newLibrary(t)
	for _, p := range []struct {
		path   string
		follow func(*testing.T, *page)
	}{
		{"docs/how-to/several-hosts.md", s.severalHosts},
		{"docs/how-to/monitoring.md", s.monitoring},
		{"docs/how-to/move-a-running-guest.md", s.moveARunningGuest},
		{"docs/how-to/attach-and-share.md", s.attachAndShare},
		{"docs/how-to/move-a-shared-volume.md", s.moveASharedVolume},
		{"docs/how-to/shelve.md", s.shelve},
		{"docs/how-to/change-a-boot-volume.md", s.changeABootVolume},
		{"docs/how-to/resize-a-volume.md", s.resizeAVolume},
		{"docs/how-to/external-copy.md", s.externalCopy},
		{"docs/how-to/linked-clones.md", s.linkedClones},
		{"docs/how-to/check-a-host.md", s.checkAHost},
		{"docs/how-to/recover.md", s.recover},
		{"docs/how-to/watch-in-a-browser.md", s.watchInABrowser},
		{"docs/how-to/replace-an-array.md", s.replaceAnArray},
		{"docs/how-to/empty-a-pool.md", s.emptyAPool},
		{"docs/how-to/upgrade.md", s.upgrade},
		{"docs/how-to/back-up-the-registry.md", s.backUpTheRegistry},
		{"docs/how-to/lose-a-host.md", s.loseAHost},
	} {
		t.Run(strings.TrimSuffix(filepath.Base(p.path), ".md"), func(t *testing.T) {
			page := openPage(t, p.path, s.reader(s.hv1.Machine, daemonSocket))
			p.follow(t, page)
			page.assertAllDone(t)
		})
	}
	s.hv1.finish(t, s.web1, "vdb", "web1-vdb")
}

func newLibrary(t *testing.T) *library {
	t.Helper()
	var dirs []string
	for _, pool := range sharedOnPages {
		dirs = append(dirs, "/srv/"+pool)
	}
	s := &library{packagedSite: newPackagedSite(t, dirs, "hv1", "hv2")}
	s.hv1, s.hv2 = s.hosts[0], s.hosts[1]
	tools, err := filepath.Glob(filepath.Join(machine.DocsDir(t), "tools", "*.deb"))
	if err != nil || len(tools) == 0 {
		t.Fatalf("tools of pages: %v, %v", tools, err)
	}
	before := relabelled(t, packages(t, "volferryd", "volferry-registry", "volferryctl"))
	for _, m := range []*machine.Machine{s.registry, s.hv1.Machine, s.hv2.Machine} {
		wanted := tools
		for _, deb := range before {
			if daemon := strings.HasPrefix(filepath.Base(deb), "volferryd_"); strings.Contains(deb, "volferryctl") || daemon != (m == s.registry) {
				wanted = append(wanted, deb)
			}
		}
		if err := m.InstallDebs(t.Context(), wanted...); err != nil {
			t.Fatal(err)
		}
		if err := m.CopyIn(t.Context(), sources, packages(t, "volferryd", "volferry-registry", "volferryctl")...); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// olderVersion is less than that of every package.
const olderVersion = "0.0.0~older"

// relabelled are packages with an older version on them.
func relabelled(t *testing.T, debs []string) []string {
	t.Helper()
	var older []string
	for _, deb := range debs {
		dir := t.TempDir()
		run(t, "dpkg-deb", "--raw-extract", deb, dir)
		control := filepath.Join(dir, "DEBIAN", "control")
		text, err := os.ReadFile(control)
		if err != nil {
			t.Fatal(err)
		}
		text = regexp.MustCompile(`(?m)^Version: .*$`).ReplaceAll(text, []byte("Version: "+olderVersion))
		name, _, _ := strings.Cut(filepath.Base(deb), "_")
		to := filepath.Join(t.TempDir(), name+"_older.deb")
		if err := os.WriteFile(control, text, 0o644); err != nil { //nolint:gosec // as in the package
			t.Fatal(err)
		}
		run(t, "dpkg-deb", "-Zgzip", "-z1", "--root-owner-group", "--build", dir, to)
		older = append(older, to)
	}
	return older
}

// reader is somebody in a shell in a machine, whose volferryctl asks at a socket.
func (s *library) reader(m *machine.Machine, socket string) *site.Reader {
	shell := shellIn(m, certificates)
	return &site.Reader{
		Shell: func(ctx context.Context, line string) (string, string, error) {
			return shell(ctx, "VOLFERRY_SOCKET=${VOLFERRY_SOCKET:-"+socket+"}; export VOLFERRY_SOCKET; "+line)
		},
		Others: map[string]func(context.Context, string) error{},
		Words:  map[string]string{},
	}
}

// at is where the next commands of a page are typed.
func (s *library) at(p *page, m *machine.Machine, socket string) {
	p.Shell = s.reader(m, socket).Shell
}

// atRegistry has the next commands of a page typed at the registry.
func (s *library) atRegistry(p *page) { s.at(p, s.registry, registrySocket) }

// atHost has the next commands of a page typed at a host.
func (s *library) atHost(p *page, h *siteHost) { s.at(p, h.Machine, daemonSocket) }

func (s *library) severalHosts(t *testing.T, p *page) {
	p.Names = []string{"alpha", "hv1", "beta", "hv2"}
	s.atRegistry(p)
	p.does(t, "runuser -u volferry-registry -- volferry-registry init-ca", "systemctl enable", "volferry-registry issue-cert host alpha")
	lines := strings.Replace(p.next(t, "registry =").Text, `["nfs"]`, `["`+strings.Join(sharedOnPages, `", "`)+`"]`, 1)
	sh(t, s.registry, "cd "+certificates+" && volferry-registry issue-cert host hv2")
	for _, h := range s.hosts {
		s.configure(t, h, lines)
		for _, pool := range sharedOnPages {
			h.pool(t, pool, "/srv/"+pool)
		}
	}
	s.waitForHosts(t)
	p.does(t, "volferryctl host list", "volferry-registry issue-cert operator ann")

	pools := strings.NewReplacer(p.Names...).Replace(p.next(t, "# /etc/volferry/registry.toml").Text)
	for _, pool := range []string{"fast", "slow", "nfs2"} {
		pools += pool + ` = ["hv1", "hv2"]` + "\n"
	}
	sh(t, s.registry, "cat >>/etc/volferry/registry.toml <<'END'\n"+p.next(t, "ca_dir =").Text+pools+`END
		install -d -m 0700 /etc/volferry/ca
		mv /var/lib/volferry-registry/tls/ca.key /etc/volferry/ca/
		volferry-registry check-config
		systemctl restart volferry-registry`)
	p.Words["UUID"] = get[api.Host](t, s.admin, "host", "host", "show", "hv1").ID
	p.does(t, "volferry-registry issue-cert server --replace")
	s.configure(t, s.hv1, "")
	s.waitForHosts(t)
	p.does(t, "volferry-registry revoke")
	refused := func() bool {
		out, _ := s.hv1.Exec(t.Context(), "volferryctl", "status")
		return strings.Contains(out, "refused us")
	}
	eventually(t, "the host is refused", refused)
	sh(t, s.registry, "cd "+certificates+" && volferry-registry issue-cert host hv1 --replace")
	s.configure(t, s.hv1, "")
	s.waitForHosts(t)
}

// waitForHosts returns when the registry hears of all hosts, and they of it.
func (s *library) waitForHosts(t *testing.T) {
	t.Helper()
	eventually(t, "the registry has all hosts", func() bool {
		for _, h := range s.hosts {
			out, err := h.at.Ctl(t.Context(), "host", "list")
			if err != nil || !strings.Contains(out, h.Name) {
				return false
			}
		}
		return len(get[[]api.Host](t, s.admin, "hosts", "host", "list")) == len(s.hosts)
	})
}

func (s *library) monitoring(t *testing.T, p *page) {
	p.leaves(t, "rule_files:", "TestPrometheusScrapesTheSiteAndAlerts has a Prometheus read it")
	p.does(t, "curl")
}

// bootable adopts an instance of the first host that may leave it: it boots from vda, by
// whose name root it then knows it, and its writer has vdb. Its images are in a pool.
func (s *library) bootable(t *testing.T, name, pool, root string) *guest {
	t.Helper()
	boot := lab.Disk{Volume: lab.Volume{Path: "/srv/" + pool + "/" + name + "-vda.raw", Format: "raw"}, Serial: "root"}
	s.bootImage(t, boot.Path, root)
	data := lab.Disk{
		Volume: lab.Volume{Path: "/srv/" + pool + "/" + name + "-vdb.raw", Format: "raw"}, Serial: "data",
		Seed: 50, Fill: lab.Fill{Seed: 4711, Percent: 30},
	}
	s.hv1.image(t, data)
	if _, err := s.hv1.libvirt.Virsh(t.Context(), "pool-refresh", pool); err != nil {
		t.Fatal(err)
	}
	return newGuest(t, s.hv1.test, s.hv1.libvirt, lab.GuestConfig{Name: name, UEFI: true, Disks: []lab.Disk{boot, data}})
}

// bootImage makes an image that a guest boots from.
func (s *library) bootImage(t *testing.T, path, root string) {
	t.Helper()
	if err := lab.MakeBootVolume(t.Context(), lab.Volume{Path: s.hv1.Path(path), Format: "raw"}, lab.BootVolumeBytes, root); err != nil {
		t.Fatal(err)
	}
}

// attachedAt is the attachment of a volume that its instance writes to.
func (s *library) attachedAt(t *testing.T, volume string) string {
	t.Helper()
	for _, a := range get[[]api.Attachment](t, s.admin, "attachments", "attachment", "list", "--volume", volume) {
		if a.State == api.AttachmentAttached {
			return a.ID
		}
	}
	t.Fatalf("no attachment of volume %s is attached", volume)
	return ""
}
