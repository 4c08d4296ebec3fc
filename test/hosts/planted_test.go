// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// planted is a file that only root of one host may read. Another host puts links to it in a pool
// that both have.
type planted struct {
	host   *site.Host
	secret string
	text   string
}

// TestNoHostFollowsALinkThatAnotherOnePlantsInTheirPool, whatever an operator asks of it: its
// guests get nothing of the file that the link leads to, and its daemon copies nothing.
func TestNoHostFollowsALinkThatAnotherOnePlantsInTheirPool(t *testing.T) {
	leftToTestHosts(t)
	t.Parallel()
	c := startCluster(t, "hv1", "hv2")
	a, b, admin := c.Hosts[0], c.Hosts[1], c.Registry.Caller()
	p := planted{host: b, secret: filepath.Join(b.Dir, "secret"), text: strings.Repeat("for root of hv2\n", volumeBytes/16)}
	if err := os.WriteFile(p.secret, []byte(p.text), 0o600); err != nil {
		t.Fatal(err)
	}
	guest := c.guest(t, b)
	lone := c.volume(t, a, "lone", sharedPool, "default")
	held := c.volume(t, a, "held", sharedPool, "default")
	ctl(t, b.Caller, "volume", "attach", held.Name, guest.Name)
	shelved := c.mobile(t, "web")
	ctl(t, admin, "instance", "shelve", shelved.Name)
	base, clone := c.clone(t, a)

	t.Run("a volume that no guest has", func(t *testing.T) {
		plantedAt := p.plants(t, lone.Location.Path)
		p.refuses(t, plantedAt, b.Caller, "volume", "attach", lone.Name, guest.Name)
		p.refuses(t, plantedAt, b.Caller, "volume", "migrate", lone.Name, "--to-pool", localPool)
		p.refuses(t, plantedAt, b.Caller, "volume", "migrate", lone.Name, "--to-pool", localPool, "--dry-run")
		p.refuses(t, plantedAt, b.Caller, "volume", "resize", lone.Name, "--size", "64MiB")
	})
	t.Run("the base image of a linked clone", func(t *testing.T) {
		plantedAt := p.plants(t, base)
		p.refuses(t, plantedAt, b.Caller, "volume", "attach", clone, guest.Name)
		p.refuses(t, plantedAt, b.Caller, "volume", "migrate", clone, "--to-pool", localPool)
	})
	t.Run("a volume of the shelf", func(t *testing.T) {
		plantedAt := p.plants(t, filepath.Join(c.Shared, "pool-"+sharedPool, shelved.Name+"-vdb"))
		p.refuses(t, plantedAt, admin, "instance", "unshelve", shelved.Name, "--host", b.Name)
		eventually(t, "the instance is on the shelf", func() bool {
			return get[api.Instance](t, admin, "instance", "instance", "show", shelved.Name).State == api.InstanceShelvedOffloaded
		})
		for _, h := range c.Hosts {
			assertNoDomain(t, h, shelved)
		}
	})
	t.Run("a volume of a guest", func(t *testing.T) {
		plantedAt := p.plants(t, held.Location.Path)
		for _, state := range []string{"running", "stopped"} {
			p.refuses(t, plantedAt, b.Caller, "volume", "migrate", held.Name, "--to-pool", otherPool)
			p.refuses(t, plantedAt, b.Caller, "instance", "migrate", guest.Name, "--to-pool", otherPool)
			p.refuses(t, plantedAt, b.Caller, "volume", "resize", held.Name, "--size", "64MiB")
			if state == "running" {
				ctl(t, b.Caller, "instance", "stop", guest.Name, "--force")
			}
		}
		p.refuses(t, plantedAt, b.Caller, "instance", "start", guest.Name)
		p.drains(t, c, plantedAt, held)
	})
	// With the images back in their places all of it goes.
	ctl(t, b.Caller, "instance", "start", guest.Name)
	ctl(t, b.Caller, "volume", "attach", lone.Name, guest.Name)
	ctl(t, admin, "instance", "unshelve", shelved.Name, "--host", b.Name)
	ctl(t, b.Caller, "instance", "stop", shelved.Name, "--force")
	ctl(t, b.Caller, "instance", "stop", guest.Name, "--force")
}

// clone makes a linked clone in the shared pool, and returns the path of its base image and its
// name.
func (c *cluster) clone(t *testing.T, h *site.Host) (base, name string) {
	t.Helper()
	dir := filepath.Join(c.Shared, "pool-"+sharedPool)
	base = filepath.Join(dir, "base.raw")
	if err := lab.MakeVolume(t.Context(), lab.Volume{Path: base, Format: "raw"}, volumeBytes, lab.Fill{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "clone.qcow2")
	if out, err := exec.CommandContext(t.Context(), "qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "raw", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ctl(t, h.Caller, "volume", "adopt", "--path", path, "--format", "qcow2", "clone")
	return base, "clone"
}

// plants puts a link in the place of a file, until the test ends, and returns the path.
func (p planted) plants(t *testing.T, path string) string {
	t.Helper()
	if err := errors.Join(os.Rename(path, path+".was"), os.Symlink(p.secret, path)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if at, err := os.Readlink(path); err != nil || at != p.secret {
			t.Errorf("the link at %s: %q, %v", path, at, err)
		}
		if err := os.Rename(path+".was", path); err != nil {
			t.Error(err)
		}
	})
	return path
}

// refuses makes a call that has to be refused in words that name the link, and to leave nothing
// behind.
func (p planted) refuses(t *testing.T, link string, at site.Caller, args ...string) {
	t.Helper()
	before := p.files(t)
	_, err := at.Ctl(t.Context(), append([]string{"-o", "json", "--progress", "none"}, args...)...)
	if err == nil || !hasCode(err, api.CodePermissionDenied) || !strings.Contains(err.Error(), link) || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("volferryctl %s: %v; want permission_denied and the link %s", strings.Join(args, " "), err, link)
	}
	if after := p.files(t); after != before {
		t.Errorf("after volferryctl %s there are\n%s\nand before\n%s", strings.Join(args, " "), after, before)
	}
	p.untouched(t)
}

// drains drains the shared pool: what the link is in the place of stays, and is named.
func (p planted) drains(t *testing.T, c *cluster, link string, held disk) {
	t.Helper()
	_, err := c.Registry.Caller().Ctl(t.Context(), "pool", "drain", sharedPool, "--to", newSharedPool)
	if err == nil {
		t.Error("the pool was drained")
	}
	for _, v := range c.drain(t).Volumes {
		if v.VolumeID == held.ID && (v.State != api.DrainVolumeSkipped || v.Error == nil || v.Error.Code != api.CodePermissionDenied || !strings.Contains(v.Error.Message, link)) {
			t.Errorf("the volume is %s (%v), want it skipped for the link %s", v.State, v.Error, link)
		}
	}
	p.untouched(t)
}

// files are the images and overlays on the host.
func (p planted) files(t *testing.T) string {
	t.Helper()
	var all []string
	for _, dir := range []string{localDir(p.host), filepath.Join(p.host.Dir, "pool-"+otherPool), p.host.Overlays()} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, filepath.Join(dir, e.Name()))
		}
	}
	return strings.Join(all, "\n")
}

// untouched checks that the file is as it was, and that no process has it open.
func (p planted) untouched(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(p.secret)
	info, statErr := os.Stat(p.secret)
	if errors.Join(err, statErr) != nil || string(text) != p.text || info.Mode() != 0o600 {
		t.Errorf("the file that only root may read was changed: %v", errors.Join(err, statErr))
	}
	opens, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range opens {
		if at, err := os.Readlink(fd); err == nil && at == p.secret {
			t.Errorf("%s is open as %s", p.secret, fd)
		}
	}
}
