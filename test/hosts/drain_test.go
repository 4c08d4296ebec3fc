// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"errors"
	"os"
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
	leftToTestHosts(t)
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
