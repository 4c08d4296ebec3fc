// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
)

// The how-tos of moves, on the site of the how-tos.

func (s *library) moveARunningGuest(t *testing.T, p *page) {
	s.web1 = s.bootable(t, "web1", "slow", "web1")
	if err := s.web1.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	assertBooted(t, s.web1, "web1")
	s.web1.write(t, "vdb")
	p.does(t, "volferryctl doctor", "volferryctl instance adopt web1", "volferryctl volume migrate web1-vda --to-pool fast\n")
	ctl(t, s.hv1.at, "volume", "migrate", "web1-vda", "--to-pool", "slow")
	p.Names = []string{"100MiB/s", "4MiB/s", "20MiB/s", "100MiB/s"} // it is a small volume
	// The second line is for another terminal.
	var migration string
	p.Others["volferryctl volume migrate"] = func(ctx context.Context, line string) error {
		_, _, err := p.Shell(ctx, line+" --no-wait")
		migration = s.moving(t)
		return err
	}
	p.does(t, "volferryctl volume migrate web1-vda --to-pool fast --bandwidth")
	ctl(t, s.hv1.at, "migration", "watch", migration)
	p.does(t, "volferryctl volume which web1-vda")
	s.assertIn(t, "fast", "web1-vda")
}

// moving is the one migration of the first host.
func (s *library) moving(t *testing.T) string {
	t.Helper()
	open := get[[]api.Migration](t, s.hv1.at, "migrations", "migration", "list")
	if len(open) != 1 {
		t.Fatalf("%d migrations are open, want one", len(open))
	}
	return open[0].ID
}

// assertIn claims that volumes are in a pool.
func (s *library) assertIn(t *testing.T, pool string, volumes ...string) {
	t.Helper()
	for _, name := range volumes {
		if v := get[api.Volume](t, s.admin, "volume", "volume", "show", name); v.Location.Pool != pool {
			t.Errorf("volume %s is in pool %s, want %s", name, v.Location.Pool, pool)
		}
	}
}

func (s *library) moveASharedVolume(t *testing.T, p *page) {
	s.atRegistry(p)
	p.leaves(t, "volferryctl migration complete M --discard-memory", "it takes a guest whose memory is lost in the middle of a move, as in the tests of registry/internal/sharedmove")
	ctl(t, s.admin, "volume", "migrate", "quorum", "--to-pool", "nfs", "--pause-all", "--yes")
	// It asks, at a terminal. Who says no has moved nothing.
	c := openConsole(t.Context(), t, s.registry, "volferryctl --socket "+registrySocket+strings.TrimPrefix(p.next(t, "volferryctl volume migrate quorum --to-pool nfs2 --pause-all\n").Commands[0], "volferryctl"))
	c.wait(t, `2 guests will be paused for about \S+, while 1GiB are copied:\s+web1 on hv1 \(running\): \S+ of RAM\s+web2 on hv1 \(running\): \S+ of RAM\s+(?:The volume takes up to 1GiB of \S+ free in pool \S+\.\s+)?Save these guests and move the volume\? \[y/N\] `)
	c.press(t, "n\r")
	_ = c.end() // it says that nothing was done
	s.assertIn(t, "nfs", "quorum")
	p.does(t, "volferryctl volume migrate quorum --to-pool nfs2 --pause-all --yes")
	s.assertIn(t, "nfs2", "quorum")
	s.web1.write(t, "vdb")
	path := get[api.Volume](t, s.admin, "volume", "volume", "show", "quorum").Location.Path
	sh(t, s.hv1.Machine, "dd if=/dev/urandom of="+path+" bs=1M count=128 conv=notrunc status=none; sync "+path)
	ctl(t, s.admin, "volume", "migrate", "quorum", "--to-pool", "nfs", "--pause-all", "--yes", "--bandwidth", "4MiB/s", "--no-wait")
	for _, m := range get[[]api.Migration](t, s.admin, "migrations", "migration", "list") {
		p.Words["M"] = m.ID
	}
	p.Others["volferryctl migration watch"] = interrupted(p) // for another terminal, too
	p.does(t, "volferryctl migration watch M")
	s.assertIn(t, "nfs2", "quorum")
	s.web1.write(t, "vdb")
	p.leaves(t, "volferryctl volume migrate quorum --to-pool nfs2 --live-shared --max-pause 30s\n",
		"it is there already, and TestVolumeSharedByTwoHostsMovesWhileAllItsGuestsWrite looks at what the guests wrote")
	for _, instance := range []string{"web1", "web2"} {
		ctl(t, s.hv1.at, "volume", "detach", "quorum", instance)
	}
}

// interrupted runs a command that goes on for long, and presses Ctrl-C.
func interrupted(p *page) func(context.Context, string) error {
	return func(ctx context.Context, line string) error {
		_, _, err := p.Shell(ctx, "timeout --preserve-status --signal=INT 2 "+line+"; [ $? = 130 ]")
		return err
	}
}

func (s *library) externalCopy(t *testing.T, p *page) {
	const image = "/srv/slow/web1-copy.raw"
	from := get[api.Volume](t, s.admin, "volume", "volume", "show", "web1-vdb").Location.Path
	p.Names = []string{"web1-vda", "web1-vdb", "/dev/vg1/web1", image, "/srv/slow/web1.img", from} // a machine has no logical volumes
	p.does(t, "volferryctl attachment list")
	p.Words["A"] = s.attachedAt(t, "web1-vdb")
	p.does(t, "volferryctl -o json migration start A")
	for _, a := range get[[]api.Attachment](t, s.admin, "attachments", "attachment", "list", "--volume", "web1-vdb") {
		if a.ID != p.Words["A"] {
			p.Words["DST_ATTACHMENT"] = a.ID
		}
	}
	s.web1.write(t, "vdb")
	p.does(t, "dd if=/srv/slow/web1.img", "volferryctl migration complete A DST_ATTACHMENT")
	s.assertIn(t, "slow", "web1-vdb")
	s.web1.write(t, "vdb")
}

func (s *library) linkedClones(t *testing.T, p *page) {
	clone := func() {
		sh(t, s.hv1.Machine, `
			qemu-img create -q -f qcow2 -b /srv/slow/base.raw -F raw /srv/slow/web.qcow2
			virsh pool-refresh slow`)
		s.off(t, "web", "<driver name='qemu' type='qcow2'/><source file='/srv/slow/web.qcow2'/>", "")
	}
	sh(t, s.hv1.Machine, "qemu-img create -q -f raw /srv/slow/base.raw 16M")
	clone()
	p.does(t, "volferryctl instance adopt web", "volferryctl volume migrate web-vda --to-pool fast")
	s.assertIn(t, "fast", "web-vda")
	sh(t, s.hv1.Machine, `
		volferryctl volume detach web-vda web
		volferryctl volume forget web-vda
		volferryctl instance forget web
		virsh undefine web
		rm /srv/slow/web.qcow2`)
	clone()
	sh(t, s.hv1.Machine, "volferryctl instance adopt web")
	p.does(t, "volferryctl volume migrate web-vda --to-pool fast --keep-base")
	s.assertIn(t, "fast", "web-vda")
}

// off defines a domain of the first host that is off, with a root disk and, where it is
// not empty, another one.
func (s *library) off(t *testing.T, name, root, data string) {
	t.Helper()
	disks := diskXML(root, "vda")
	if data != "" {
		disks += diskXML(data, "vdb")
	}
	sh(t, s.hv1.Machine, "cat >/tmp/off.xml <<'END'\n"+domainXML(name, disks)+"END\nvirsh define /tmp/off.xml")
}

// diskXML is a disk of a definition.
func diskXML(source, target string) string {
	return "<disk type='file' device='disk'>" + source + "<target dev='" + target + "' bus='virtio'/></disk>\n"
}

// rawFile is the source of a disk.
func rawFile(path string) string {
	return "<driver name='qemu' type='raw'/><source file='" + path + "'/>"
}

// domainXML is the definition of a domain that is never started.
func domainXML(name, disks string) string {
	return "<domain type='qemu'><name>" + name + "</name><memory unit='MiB'>64</memory>" +
		"<os><type arch='x86_64' machine='pc'>hvm</type></os><devices>\n" + disks + "</devices></domain>\n"
}

func (s *library) replaceAnArray(t *testing.T, p *page) {
	for _, h := range s.hosts {
		h.pool(t, "old", "/srv/old")
		sh(t, h.Machine, "mkdir -p /srv/new")
		ctl(t, h.at, "pool", "list") // so that the registry knows of it
	}
	ctl(t, s.admin, "type", "create", "database", "--pool", "old")
	for _, v := range []string{"one", "two", "three"} {
		ctl(t, s.hv1.at, "volume", "create", v, "--size", "16MiB", "--pool", "old")
	}
	sh(t, s.hv1.Machine, "qemu-img create -q -f raw /srv/old/tail.raw 16M; virsh pool-refresh old")
	s.off(t, "tail", rawFile("/srv/old/tail.raw"), "")

	// What is not Volferry's is typed at each host.
	registry := s.reader(s.registry, registrySocket).Shell
	p.Shell = func(ctx context.Context, line string) (out, stderr string, err error) {
		if !strings.HasPrefix(line, "virsh ") && !strings.HasPrefix(line, "fuser ") {
			return registry(ctx, line)
		}
		for _, h := range s.hosts {
			if out, stderr, err = shellIn(h.Machine, sources)(ctx, line); err != nil {
				return out, stderr, err
			}
		}
		return out, stderr, nil
	}
	p.does(t, "export VOLFERRY_SOCKET", "virsh pool-define-as new")
	for _, h := range s.hosts { // as a minute later
		ctl(t, h.at, "pool", "list")
	}
	p.does(t, "volferryctl pool list", "volferryctl type list", "volferryctl instance adopt --all --host hv1")
	p.Words["V"] = "one"
	p.does(t, "volferryctl volume migrate V", "volferryctl pool drain old")
	p.Words["D"] = s.lastDrain(t)
	p.does(t, "volferryctl drain list", "volferryctl volume list --pool old")
	s.assertIn(t, "new", "one", "two", "three", "tail-vda")
	// fuser says by its exit status that nothing is open. /srv/old is no mount here, and -m
	// would ask for the file system of the whole machine.
	p.Others["fuser"] = func(ctx context.Context, line string) error {
		_, _, err := p.Shell(ctx, strings.Replace(line, "-vm", "-v", 1)+"; [ $? = 1 ]")
		return err
	}
	p.does(t, "virsh list --all --name", "virsh pool-destroy old")
	for _, h := range s.hosts {
		ctl(t, h.at, "pool", "list")
	}
}

// lastDrain is the one drain, or the newest.
func (s *library) lastDrain(t *testing.T) string {
	t.Helper()
	var last api.Drain
	for _, d := range get[[]api.Drain](t, s.admin, "drains", "drain", "list") {
		if last.ID == "" || d.StartedAt.After(last.StartedAt) {
			last = d
		}
	}
	return last.ID
}

func (s *library) emptyAPool(t *testing.T, p *page) {
	s.atRegistry(p)
	for _, h := range s.hosts {
		h.pool(t, "old", "/srv/old")
		ctl(t, h.at, "pool", "list")
	}
	for _, v := range []string{"four", "five"} {
		ctl(t, s.hv2.at, "volume", "create", v, "--size", "16MiB", "--pool", "old")
	}
	p.does(t, "volferryctl --socket /run/volferry/registry.sock pool drain old")
	s.assertIn(t, "new", "four", "five")
	p.Words["D"] = s.lastDrain(t)
	p.does(t, "volferryctl drain list")

	p.leaves(t, "volferryctl migration copy V", "it takes a move that has stopped on a full pool; TestAMigrationEndsOnAFullDiskWithEveryWrite of test/e2e has one")
	p.Words["D"] = s.slowDrain(t, "new", "old")
	p.Others["volferryctl drain watch"] = interrupted(p)
	p.does(t, "volferryctl drain watch D")
	p.leaves(t, "volferryctl -o json volume list", "a machine has no jq")
	p.leaves(t, "while read -r volume path", "a machine has no LUNs, and the test of the page reads line by line")
	_, _ = s.admin.Ctl(t.Context(), "drain", "stop", p.Words["D"]) // the page may have stopped it
	s.finishMoves(t)
	ctl(t, s.admin, "type", "create", "fast", "--pool", "fast")
	ctl(t, s.hv1.at, "volume", "create", "db-data", "--size", "16MiB", "--pool", "nfs")
	p.does(t, "volferryctl volume retype db-data")
	s.assertIn(t, "fast", "db-data")
}

// slowDrain begins a drain that takes minutes.
func (s *library) slowDrain(t *testing.T, from, to string) string {
	t.Helper()
	h := s.hv2
	name := from + "-to-" + to
	ctl(t, h.at, "volume", "create", name, "--size", "64MiB", "--pool", from)
	v := get[api.Volume](t, h.at, "volume", "volume", "show", name)
	sh(t, h.Machine, "dd if=/dev/urandom of="+v.Location.Path+" bs=1M count=64 conv=notrunc status=none")
	ctl(t, s.admin, "pool", "drain", from, "--to", to, "--bandwidth", "256KiB/s", "--no-wait")
	return s.lastDrain(t)
}

// finishMoves lets what moves go on at full speed.
func (s *library) finishMoves(t *testing.T) {
	t.Helper()
	for _, m := range get[[]api.Migration](t, s.admin, "migrations", "migration", "list") {
		ctl(t, s.admin, "migration", "set", m.ID, "--bandwidth", "1GiB/s")
		ctl(t, s.admin, "migration", "watch", m.ID)
	}
}

func (s *library) watchInABrowser(t *testing.T, p *page) {
	s.atRegistry(p)
	p.Others["volferryctl --socket /run/volferry/registry.sock web"] = s.web(p)
	p.Others["volferryctl web"] = s.web(p)
	p.Others["ssh"] = func(_ context.Context, line string) error {
		t.Logf("NOT RUN, a machine has no ssh: %s", line)
		return nil
	}
	p.does(t, "volferryctl --socket /run/volferry/registry.sock web")
	s.atHost(p, s.hv1)
	p.does(t, "ssh")
}

// web has the link of a command that goes on until Ctrl-C answer.
func (s *library) web(p *page) func(context.Context, string) error {
	return func(ctx context.Context, line string) error {
		_, _, err := p.Shell(ctx, `
			( `+line+` >/tmp/link 2>&1 & echo $! >/tmp/web )
			for i in $(seq 50); do link=$(grep -o 'http://[^ ]*' /tmp/link) && break; sleep 0.1; done
			curl -fsSL --cookie-jar /tmp/cookies "$link" | grep -qi '<html'; found=$?
			kill $(cat /tmp/web)
			[ $found = 0 ]`)
		return err
	}
}
