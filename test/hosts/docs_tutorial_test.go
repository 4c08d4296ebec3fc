// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/machine"
	"github.com/volferry/volferry/test/site"
)

// downloads is where a machine without a network has what its wget fetches, by host and
// path of the address.
const downloads = "/srv/www"

// A reader with a fresh Debian follows the tutorial word for word: its volume moves under
// the writes of its guest, a move is taken back, the pool is empty, and no line that the
// guest had on stable storage is lost. What cannot be in a machine without a network is
// stood in for: the build of the packages, Debian's lists of packages, its image and wget.
func TestTutorialWordForWord(t *testing.T) {
	leftToTestHosts(t)
	t.Parallel()
	const addressOfImage = "cloud.debian.org/images/cloud/bookworm/latest"
	m := machine.Start(t, machine.Config{
		Name: "hv1", Binds: map[string]string{filepath.Join(downloads, addressOfImage): filepath.Join(machine.DocsDir(t), "image")},
	})
	if err := m.CopyIn(t.Context(), "/srv/packages", packages(t, "volferryd", "volferry-registry", "volferryctl")...); err != nil {
		t.Fatal(err)
	}
	installWget(t, m)
	tour := &tour{m: m, at: site.In(m, daemonSocket)}
	p := openPage(t, "docs/tutorial/first-move.md", &site.Reader{
		Shell: shellIn(m, sources),
		Others: map[string]func(context.Context, string) error{
			"make packages": func(ctx context.Context, _ string) error { // there is no Go: they were made before
				_, err := m.Script(ctx, "rm -rf "+sources+"/dist; cp -r /srv/packages "+sources+"/dist")
				return err
			},
			"apt update": func(context.Context, string) error { return nil },
			"virsh console tour": func(context.Context, string) error {
				tour.console = openConsole(t.Context(), t, m, "virsh console tour")
				return nil
			},
		},
		Words: map[string]string{},
	})
	p.does(t, "apt update\napt install", "make packages", "volferryctl doctor", "virsh pool-define-as", "wget")
	definition := strings.Replace(p.next(t, "<domain type='kvm'>").Text, "type='kvm'", "type='qemu'", 1) // as the page says
	if err := os.WriteFile(m.Path(sources+"/tour.xml"), []byte(definition), 0o600); err != nil {
		t.Fatal(err)
	}
	p.does(t, "virsh define tour.xml")
	tour.writes(t, p.next(t, "while sleep").Text)

	p.does(t, "volferryctl instance adopt tour", "volferryctl volume migrate tour-vda --to-pool new", "volferryctl volume which tour-vda")
	tour.assertIn(t, "new", "tour-vda")
	tour.looks(t, p.next(t, "awk").Text)

	p.does(t, "volferryctl volume migrate tour-vda --to-pool old --bandwidth")
	p.does(t, "volferryctl migration cancel tour-vda")

	p.does(t, "volferryctl volume create data", "volferryctl pool drain old", "volferryctl volume list", "volferryctl migration delete-source tour-vda")
	tour.assertIn(t, "new", "tour-vda", "data", "spare")
	if left := sh(t, m, "ls /var/lib/libvirt/old"); left != "" {
		t.Errorf("the pool is not empty: %s", left)
	}

	synced, sum := tour.synced(t)
	disk := tour.location(t, "tour-vda").Path
	p.Others["volferryctl volume detach data tour"] = func(ctx context.Context, line string) error { // its instance is off by now
		tour.assertHolds(t, m.Path(disk), synced, sum)
		_, _, err := p.Shell(ctx, line)
		return err
	}
	p.does(t, "volferryctl instance stop tour --force")
	p.assertAllDone(t)
	if left := sh(t, m, "ls -A /var/lib/volferry/overlays /var/lib/volferry/guards; virsh list --all --name; ls "+sources); left != "/var/lib/volferry/guards:\n\n/var/lib/volferry/overlays:\n\ndist" {
		t.Errorf("something is left:\n%s", left)
	}
	tour.installs(t, openPage(t, "docs/how-to/install.md", p.Reader))
}

// installs follows the page of the packages on the same machine, from their installation to
// their end.
func (o *tour) installs(t *testing.T, p *page) {
	t.Helper()
	sh(t, o.m, `echo 'APT::Get::Assume-Yes "true";' >/etc/apt/apt.conf.d/yes`) // what the reader answers
	p.does(t, "make packages", "apt install ./dist/*.deb", "volferryd check-config", "volferryctl migration list", "apt remove volferryd")
	sh(t, o.m, "test -e /var/lib/volferry/journal.db && test -e /etc/volferry/volferryd.toml && test -x /etc/libvirt/hooks/qemu.d/volferry-guard")
	p.does(t, "apt purge volferryd", "apt purge volferry-registry")
	sh(t, o.m, "test ! -e /var/lib/volferry && test ! -e /etc/libvirt/hooks/qemu.d/volferry-guard && test -e /var/lib/volferry-registry/registry.db")
	p.assertAllDone(t)
}

// installWget installs a package that stands for Debian's wget.
func installWget(t *testing.T, m *machine.Machine) {
	t.Helper()
	sh(t, m, `
		mkdir -p /tmp/wget/DEBIAN /tmp/wget/usr/bin
		printf 'Package: wget\nVersion: 1.21.3\nArchitecture: all\nMaintainer: nobody\nDescription: stands for wget\n' >/tmp/wget/DEBIAN/control
		printf '#!/bin/sh\ncp "`+downloads+`/${1#https://}" .\n' >/tmp/wget/usr/bin/wget
		chmod 0755 /tmp/wget/usr/bin/wget
		dpkg-deb --build /tmp/wget /tmp/wget.deb
		dpkg --install /tmp/wget.deb`)
}

// rootHome is where the guest has its log.
const rootHome = "/root"

// tour is the machine of the tutorial, and its guest.
type tour struct {
	m       *machine.Machine
	at      site.Caller
	console *console
}

// writes has the guest, at whose console somebody is, write as the page says.
func (o *tour) writes(t *testing.T, line string) {
	t.Helper()
	o.console.login(t)
	o.console.line(t, strings.TrimSpace(line), `\[1\] \d+`)
	o.console.leave(t)
}

// again is at the console once more.
func (o *tour) again(t *testing.T) {
	t.Helper()
	o.console = openConsole(t.Context(), t, o.m, "virsh console tour")
	o.console.wait(t, "Escape character")
	o.console.knock(t, "\r", prompt)
}

// looks asks the guest how it felt, as the page says.
func (o *tour) looks(t *testing.T, line string) {
	t.Helper()
	o.again(t)
	found := o.console.line(t, strings.TrimSpace(line), `(\d+) lines, longest gap ([0-9.]+) s`)
	t.Logf("the guest wrote %s lines, with %s s between two of them at most", found[1], found[2])
	o.console.leave(t)
}

// synced is how many bytes of its log the guest had on stable storage, and their sum.
func (o *tour) synced(t *testing.T) (int64, string) {
	t.Helper()
	o.again(t)
	found := o.console.line(t, `sync; n=$(wc -c <log); sync; echo "$n bytes" $(head -c $n log | sha256sum)`, `(\d+) bytes ([0-9a-f]{64})`)
	o.console.leave(t)
	n, err := strconv.ParseInt(found[1], 10, 64)
	if err != nil || n == 0 {
		t.Fatalf("the guest has %q bytes: %v", found[1], err)
	}
	return n, found[2]
}

// assertHolds claims that the disk of the guest, whose power was cut, has what it had on
// stable storage.
func (o *tour) assertHolds(t *testing.T, disk string, bytes int64, sum string) {
	t.Helper()
	const firstSector = 264192 // of the root, see test/machine/docs.sh
	root := filepath.Join(t.TempDir(), "root")
	for _, command := range [][]string{
		{"dd", "if=" + disk, "of=" + root, "bs=1M", "skip=" + strconv.Itoa(firstSector/2048), "conv=sparse", "status=none"},
		{"e2fsck", "-p", root},
	} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil && command[0] != "e2fsck" { // 1: it has replayed the journal
			t.Fatalf("%v: %v: %s", command, err, out)
		}
	}
	log, err := exec.CommandContext(t.Context(), "debugfs", "-R", "cat "+rootHome+"/log", root).Output()
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	if n, err := io.CopyN(hash, strings.NewReader(string(log)), bytes); err != nil {
		t.Errorf("the guest had %d bytes on stable storage, and %d are there", bytes, n)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != sum {
		t.Errorf("of what the guest had on stable storage the first %d bytes are others: %s, want %s", bytes, got, sum)
		return
	}
	t.Logf("all %d bytes that the guest had on stable storage are there, of %d in its log", bytes, len(log))
}

func (o *tour) location(t *testing.T, volume string) api.Location {
	t.Helper()
	return get[api.Volume](t, o.at, "volume", "volume", "show", volume).Location
}

// assertIn claims that volumes are in a pool.
func (o *tour) assertIn(t *testing.T, pool string, volumes ...string) {
	t.Helper()
	for _, v := range volumes {
		if got := o.location(t, v).Pool; got != pool {
			t.Errorf("volume %s is in pool %s, want %s", v, got, pool)
		}
	}
}
