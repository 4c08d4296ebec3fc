// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// One command empties a pool on all hosts, under running guests, while the
// registry dies in the middle of it; what cannot move says why.
func TestDrainEmptiesAPoolOnAllHosts(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "hv1", "hv2")
	admin := c.Registry.Caller()
	ctl(t, admin, "type", "create", "clustered", "--multiattach")
	h1, h2 := c.Hosts[0], c.Hosts[1]
	running, stopped, elsewhere := c.guest(t, h1), c.guest(t, h1), c.guest(t, h2)
	if err := stopped.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.volume(t, h1, "lone1", localPool, "default")
	c.volume(t, h2, "lone2", localPool, "default")
	both := c.volume(t, h1, "both", localPool, "clustered")
	ctl(t, h1.Caller, "volume", "attach", both.Name, running.Name)
	ctl(t, h1.Caller, "volume", "attach", both.Name, stopped.Name)
	running.write(t, "vda")
	elsewhere.write(t, "vda")

	ended := make(chan error, 1)
	go func() {
		_, err := admin.Ctl(t.Context(), "pool", "drain", localPool, "--to", otherPool, "--parallel", "2", "--bandwidth", "4MiB/s")
		ended <- err
	}()
	c.untilMoved(t, 1)
	refuses(t, admin, api.CodeConflict, "pool", "drain", localPool, "--to", sharedPool)
	id := c.drain(t).ID
	ctl(t, admin, "drain", "pause", id)
	c.Registry.Kill()
	if err := c.Registry.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := c.drain(t); d.State != api.DrainPaused {
		t.Errorf("after a restart of the registry the drain is %s, want it paused as before", d.State)
	}
	ctl(t, admin, "drain", "resume", id)

	var failed *site.CtlError
	if err := <-ended; !errors.As(err, &failed) || failed.Exit != api.ExitOpFailed {
		t.Errorf("the drain ended with %v, want exit status %d, since one volume cannot move", err, api.ExitOpFailed)
	}
	d := c.drain(t)
	if d.State != api.DrainDone || len(d.Volumes) != 6 {
		t.Errorf("the drain is %s with %d volumes, want it done with 6", d.State, len(d.Volumes))
	}
	for _, v := range d.Volumes {
		switch {
		case v.VolumeID == both.ID:
			if v.State != api.DrainVolumeSkipped || v.Error == nil || v.Error.Code != api.CodeMultiattached {
				t.Errorf("volume %s is %s (%v), want it skipped as multiattached", v.VolumeName, v.State, v.Error)
			}
		case v.State != api.DrainVolumeMoved:
			t.Errorf("volume %s is %s (%v), want it moved", v.VolumeName, v.State, v.Error)
		}
	}
	for _, v := range get[[]api.Volume](t, admin, "volumes", "volume", "list") {
		if moved := v.Location.Pool == otherPool; moved == (v.ID == both.ID) {
			t.Errorf("volume %s is in pool %s", v.Name, v.Location.Pool)
		}
	}
	for _, g := range []*guest{running, elsewhere} {
		g.write(t, "vda")
		g.quiesce(t, "vda")
		root := g.root(t)
		assertHolds(t, disk{Volume: root}, root.Location, g.History("vda"))
	}
}

// drain is the one drain that there is.
func (c *cluster) drain(t *testing.T) api.Drain {
	t.Helper()
	drains := get[[]api.Drain](t, c.Registry.Caller(), "drains", "drain", "list")
	if len(drains) != 1 {
		t.Fatalf("there are %d drains, want one", len(drains))
	}
	return drains[0]
}

// untilMoved waits until the drain has moved so many volumes.
func (c *cluster) untilMoved(t *testing.T, n int) {
	t.Helper()
	eventually(t, "volumes are moved", func() bool {
		moved := 0
		for _, d := range get[[]api.Drain](t, c.Registry.Caller(), "drains", "drain", "list") {
			for _, v := range d.Volumes {
				if v.State == api.DrainVolumeMoved {
					moved++
				}
			}
		}
		return moved >= n
	})
}

// root is the volume in the guest's vda.
func (g *guest) root(t *testing.T) api.Volume {
	t.Helper()
	return get[api.Volume](t, g.host.Caller, "volume", "volume", "show", g.Name+"-vda")
}

// A pool is taken away when its drain says so: what else needs it is named.
func TestADrainNamesWhatElseNeedsThePool(t *testing.T) {
	leftToTestHosts(t)
	t.Parallel()
	c := startCluster(t, "hv1")
	h, admin := c.Hosts[0], c.Registry.Caller()
	c.guest(t, h)
	inPool := func(name string) string {
		path := filepath.Join(localDir(h), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := lab.MakeVolume(t.Context(), lab.Volume{Path: path, Format: "raw"}, 1<<20, lab.Fill{}); err != nil {
			t.Fatal(err)
		}
		return path
	}
	stranger, below := inPool("stranger.raw"), inPool("sub/below.raw")
	if err := h.Libvirtd.DefineWithDisks(t.Context(), "stranger", stranger); err != nil {
		t.Fatal(err)
	}
	ctl(t, h.Caller, "volume", "adopt", "--path", below, "--format", "raw", "below")

	for _, args := range [][]string{{"--dry-run"}, nil} {
		out, err := admin.Ctl(t.Context(), append([]string{"pool", "drain", localPool, "--to", otherPool}, args...)...)
		var failed *site.CtlError
		if !errors.As(err, &failed) || failed.Exit != api.ExitOpFailed {
			t.Fatalf("pool drain %v ended with %v, want exit status %d", args, err, api.ExitOpFailed)
		}
		for _, want := range []string{stranger, below} {
			if !strings.Contains(out+err.Error(), want) {
				t.Errorf("pool drain %v does not name %s:\n%s\n%v", args, want, out, err)
			}
		}
	}
	d := c.drain(t)
	want := api.PoolUse{Host: "hv1", Domain: "stranger", What: "disk vda", Path: stranger}
	if !slices.Equal(d.Uses, []api.PoolUse{want}) {
		t.Errorf("uses = %+v, want %+v", d.Uses, want)
	}

	// Without them the pool may go.
	if _, err := h.Libvirtd.Virsh(t.Context(), "undefine", "stranger"); err != nil {
		t.Fatal(err)
	}
	ctl(t, h.Caller, "volume", "migrate", "below", "--to-pool", otherPool)
	eventually(t, "the pool is not needed any more", func() bool {
		d := get[api.Drain](t, admin, "drain", "drain", "show", d.ID)
		return len(d.Uses) == 0 && !slices.ContainsFunc(d.Volumes, func(v api.DrainVolume) bool { return v.Outside() })
	})
}

// A file is needed by whatever way a definition leads to it.
func TestADrainNamesWhatDefinitionsLeadToInThePool(t *testing.T) {
	leftToTestHosts(t)
	t.Parallel()
	c := startCluster(t, "hv1")
	h, admin := c.Hosts[0], c.Registry.Caller()
	pool, elsewhere := localDir(h), filepath.Join(h.Dir, "elsewhere")
	base, link := filepath.Join(pool, "base.qcow2"), filepath.Join(elsewhere, "link")
	if err := errors.Join(os.MkdirAll(elsewhere, 0o755), os.Symlink(pool, link), os.WriteFile(filepath.Join(pool, "web.ign"), []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	create := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "qemu-img", append([]string{"create", "-q", "-f", "qcow2"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, image := range []string{base, filepath.Join(pool, "named.qcow2"), filepath.Join(pool, "linked.qcow2")} {
		create(image, "1M")
	}
	create("-b", base, "-F", "qcow2", filepath.Join(elsewhere, "clone.qcow2"))
	virsh := func(args ...string) {
		t.Helper()
		if _, err := h.Libvirtd.Virsh(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	define := func(name, source, sysinfo string) {
		t.Helper()
		doc := filepath.Join(h.Dir, name+".xml")
		text := "<domain type='qemu'><name>" + name + "</name><memory unit='MiB'>32</memory><os><type arch='x86_64'>hvm</type></os>" + sysinfo +
			"<devices><disk " + source + "<driver name='qemu' type='qcow2'/><target dev='vda' bus='virtio'/></disk></devices></domain>"
		if err := os.WriteFile(doc, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		virsh("define", doc)
	}
	leads := filepath.Join(link, "sub", "leads.raw")
	if err := errors.Join(os.Mkdir(filepath.Dir(leads), 0o755), os.WriteFile(leads, make([]byte, 1<<20), 0o600)); err != nil {
		t.Fatal(err)
	}
	ctl(t, h.Caller, "volume", "adopt", "--path", leads, "--format", "raw", "leads")
	virsh("pool-refresh", localPool)
	file := func(path string) string { return "type='file'><source file='" + path + "'/>" }
	define("clone", file(filepath.Join(elsewhere, "clone.qcow2")), "")
	define("linked", file(filepath.Join(link, "linked.qcow2")), "")
	define("named", "type='volume'><source pool='"+localPool+"' volume='named.qcow2'/>", "")
	define("coreos", file(filepath.Join(elsewhere, "clone.qcow2")), "<sysinfo type='fwcfg'><entry name='opt/com.coreos/config' file='"+filepath.Join(pool, "web.ign")+"'/></sysinfo>")

	named := []string{"volume leads " + leads, "clone disk vda " + base, "coreos disk vda " + base, "coreos sysinfo " + filepath.Join(pool, "web.ign"), "linked disk vda " + filepath.Join(link, "linked.qcow2"), "named disk vda named.qcow2"}
	awaitUses(t, admin, named)
	virsh("pool-destroy", localPool)
	awaitUses(t, admin, append([]string{"unknown"}, named...))
}

// awaitUses waits until the only pool of its name has these uses.
func awaitUses(t *testing.T, admin site.Caller, want []string) {
	t.Helper()
	var got []string
	eventually(t, "the uses of the pool are "+strings.Join(want, ", "), func() bool {
		got = nil
		for _, p := range get[[]api.Pool](t, admin, "pools", "pool", "list") {
			if p.Name != localPool {
				continue
			}
			for _, u := range p.Uses {
				text := u.Domain + " " + u.What + " " + u.Path
				switch {
				case u.Unknown != "":
					text = "unknown"
				case u.Volume != "":
					text = "volume " + u.Volume + " " + u.Path
				}
				got = append(got, text)
			}
		}
		slices.Sort(got)
		sorted := slices.Sorted(slices.Values(want))
		return slices.Equal(got, sorted)
	})
}
