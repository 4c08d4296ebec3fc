// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/test/machine"
	"github.com/volferry/volferry/test/site"
)

// saysAll fails the test if a text lacks one of these.
func saysAll(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("it does not say %q:\n%s", w, text)
		}
	}
}

// Under the packages' units, beside a libvirtd whose socket is systemd's, doctor finds
// nothing that would stop a move, and can mend what it says that it mends; and a purge
// knows where the configuration had what guests need.
func TestDoctorAndPurgeOnAHostWithThePackages(t *testing.T) {
	leftToTestHosts(t)
	t.Parallel()
	m := installedHost(t)
	at := site.In(m, daemonSocket)
	saysAll(t, ctl(t, at, "doctor"), "ok    hook: libvirt runs ", "ok    directories: ", "ok    qemu: an image was made and opened", "ok    clock: ")

	// As after an installation that did not restart libvirtd, and a clean-up by somebody.
	sh(t, m, `systemctl stop volferryd.service
rm -f /var/lib/volferry/hook-proof.json
mv /etc/libvirt/hooks/qemu.d/volferry-guard /srv/ && systemctl restart libvirtd.service && virsh list
systemctl start volferryd.service
mv /srv/volferry-guard /etc/libvirt/hooks/qemu.d/
rmdir /var/lib/volferry/overlays
chmod 0700 /var/lib/volferry`)
	if _, err := at.Ctl(t.Context(), "doctor"); err == nil {
		t.Error("doctor finds nothing wrong with a host without a directory for overlays")
	}
	saysAll(t, ctl(t, at, "doctor", "--fix"),
		"after:  /var/lib/volferry/overlays exists", "after:  /var/lib/volferry has mode 0701", "after:  the hook has refused the test start", "ok    hook: ")
	sh(t, m, `rm /etc/libvirt/hooks/qemu.d/volferry-guard`)
	saysAll(t, ctl(t, at, "doctor", "--fix"), "after:  /etc/libvirt/hooks/qemu.d/volferry-guard is installed", "ok    hook: ")
	sh(t, m, `cmp /usr/share/volferry/volferry-guard /etc/libvirt/hooks/qemu.d/volferry-guard && test -x /etc/libvirt/hooks/qemu.d/volferry-guard`)

	doctorOfADaemonThatDoesNotStart(t, m, at)

	sh(t, m, `mkdir -m 0711 /srv/overlays && echo 'overlay_dir = "/srv/overlays"' >>/etc/volferry/volferryd.toml && systemctl restart volferryd.service`)
	const overlay = "/srv/overlays/45f85f92-d48c-42b4-a4ca-1b7b46b3db68.qcow2"
	sh(t, m, "touch "+overlay)
	said := sh(t, m, "! dpkg --purge volferryd 2>&1")
	saysAll(t, said, overlay, "Its configuration is kept")
	sh(t, m, "! dpkg --purge volferryd 2>&1") // the refusal stays one
	if err := m.InstallDebs(t.Context(), packages(t, "volferryd")...); err != nil {
		t.Fatal(err)
	}
	saysAll(t, sh(t, m, "tail -n 1 /etc/volferry/volferryd.toml && volferryctl status"), `overlay_dir = "/srv/overlays"`, "ok")
	sh(t, m, "test ! -e /var/lib/volferry/refused-purge")
	sh(t, m, "rm "+overlay+" && dpkg --purge volferryd && test ! -e /var/lib/volferry && test ! -e /etc/libvirt/hooks/qemu.d/volferry-guard")
}

// doctorOfADaemonThatDoesNotStart has systemd hold the sockets of a daemon and of a registry that
// refuse their configurations, and that come up by themselves once these are mended, also if
// somebody has restarted them more often than systemd takes by default.
func doctorOfADaemonThatDoesNotStart(t *testing.T, m *machine.Machine, at site.Caller) {
	// soon is much less than a minute, for which a read waits for an answer.
	const soon = 20 * time.Second
	ends := func(want string, command ...string) {
		t.Helper()
		began := time.Now()
		_, err := at.Ctl(t.Context(), command...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", command, err, want)
		}
		if took := time.Since(began); took > soon {
			t.Errorf("%q took %s", command, took)
		}
	}
	sh(t, m, `cp -a /etc/volferry/volferryd.toml /etc/volferry/registry.toml /srv/
echo 'overlay_dir = "/run/overlays"' >>/etc/volferry/volferryd.toml
echo 'log_level = "loud"' >>/etc/volferry/registry.toml
for n in 1 2 3 4 5 6; do ! systemctl restart volferryd.service volferry-registry.service; done`)
	const why = "volferryd does not start: overlay_dir /run/overlays is in memory (tmpfs)"
	for _, command := range [][]string{{"doctor"}, {"doctor", "--fix"}, {"volume", "create", "late", "--size", "1MiB"}, {"status"}} {
		ends(why, command...)
	}
	ends("volferry-registry does not start: the log level", "--socket", registrySocket, "volume", "list")
	sh(t, m, `cp -a /srv/volferryd.toml /srv/registry.toml /etc/volferry/
timeout 30 sh -c 'until volferryctl status; do sleep 0.2; done'
! volferryctl volume show late`)
}
