// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/site"
)

// A volume that guests of two hosts write to moves with all of them saved, and goes
// on where it was if one of them cannot be.
func TestVolumeSharedByTwoHostsMovesWithAllGuestsPausedOrStays(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "hv1", "hv2")
	admin := c.Registry.Caller()
	ctl(t, admin, "type", "create", "clustered", "--multiattach")
	h1, h2 := c.Hosts[0], c.Hosts[1]
	g1, g2, off := c.guest(t, h1), c.guest(t, h2), c.guest(t, h1)
	d := c.volume(t, h1, "db", sharedPool, "clustered")
	disk1, disk2 := g1.attach(t, h1.Caller, d, 0), g2.attach(t, h2.Caller, d, 1)
	ctl(t, h1.Caller, "volume", "attach", d.Name, off.Name, "--mode", "ro")
	ctl(t, h1.Caller, "instance", "stop", off.Name, "--force")
	g1.write(t, disk1)
	g2.write(t, disk2)

	before := get[api.Volume](t, admin, "volume", "volume", "show", d.Name)
	full := littleSpace(t, filepath.Join(h2.State(), "saves"))
	_, err := admin.Ctl(t.Context(), "-o", "json", "--progress", "none", "volume", "migrate", d.Name, "--to-pool", newSharedPool, "--pause-all", "--yes")
	// What it would cost is said before.
	var failed *site.CtlError
	if !errors.As(err, &failed) || !strings.Contains(failed.Stderr, `"code":"no_space"`) {
		t.Fatalf("want code no_space: %v", err)
	}
	assertAwake(t, c, g1, disk1, g2, disk2)
	if now := get[api.Volume](t, admin, "volume", "volume", "show", d.Name); now.Location != before.Location || now.Generation != before.Generation {
		t.Errorf("after a move that could not be the volume is %+v, and was %+v", now, before)
	}
	full()

	ctl(t, admin, "volume", "migrate", d.Name, "--to-pool", newSharedPool, "--pause-all", "--yes")
	assertAwake(t, c, g1, disk1, g2, disk2)
	now := get[api.Volume](t, admin, "volume", "volume", "show", d.Name)
	if now.Location.Pool != newSharedPool || now.Generation != before.Generation+1 || len(now.Attachments) != 3 {
		t.Errorf("after the move the volume is %+v", now)
	}
	for _, a := range now.Attachments {
		if a.Location != now.Location {
			t.Errorf("attachment %s is at %+v", a.ID, a.Location)
		}
	}
	if inst := get[api.Instance](t, h1.Caller, "instance", "instance", "show", off.Name); inst.State != api.InstanceStopped {
		t.Errorf("the instance that was stopped is %s", inst.State)
	}
	ctl(t, h1.Caller, "instance", "start", off.Name)
	if _, err := off.WaitDisk(t.Context(), d.ID); err != nil {
		t.Error(err)
	}

	g1.quiesce(t, disk1)
	g2.quiesce(t, disk2)
	assertHolds(t, d, now.Location, g1.History(disk1))
	assertHolds(t, d, now.Location, g2.History(disk2))
}

// assertAwake claims that both guests go on writing, and that nothing of a move is
// left on the hosts.
func assertAwake(t *testing.T, c *cluster, g1 *guest, disk1 string, g2 *guest, disk2 string) {
	t.Helper()
	if err := g1.WaitWriting(t.Context(), disk1, 50); err != nil {
		t.Errorf("guest %s: %v", g1.Name, err)
	}
	if err := g2.WaitWriting(t.Context(), disk2, 50); err != nil {
		t.Errorf("guest %s: %v", g2.Name, err)
	}
	for _, h := range c.Hosts {
		assertNothingIn(t, h, h.Guards())
		assertNothingIn(t, h, filepath.Join(h.State(), "saves"))
	}
	for _, i := range get[[]api.Instance](t, c.Registry.Caller(), "instances", "instance", "list") {
		if i.Locked {
			t.Errorf("instance %s is left locked: %s", i.Name, i.LockReason)
		}
	}
}

func assertNothingIn(t *testing.T, h *site.Host, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	for _, e := range left {
		if e.Name() != "lost+found" {
			t.Errorf("host %s: %s is left in %s", h.Name, e.Name(), dir)
		}
	}
}

// littleSpace puts a small filesystem over a directory until the function that it
// returns is called.
func littleSpace(t *testing.T, dir string) (end func()) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "small")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 16<<20); err != nil {
		t.Fatal(err)
	}
	run(t, "mkfs.ext4", "-q", image)
	run(t, "mount", "-o", "loop", image, dir)
	mounted := true
	end = func() {
		if mounted {
			mounted = false
			run(t, "umount", dir)
		}
	}
	t.Cleanup(end)
	return end
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...).CombinedOutput(); err != nil { //nolint:gosec // the arguments are those above
		t.Errorf("%s %v: %v: %s", name, args, err, out)
	}
}
