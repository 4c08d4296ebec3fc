// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// Guests of two hosts write to a volume, one of them to another volume as well, and a third volume
// is attached to nothing. Asked to, the drain moves the first with both guests saved, and the
// others as ever, though two of them have a guest in common and are taken on at once.
func TestDrainWithPauseAllEmptiesAPoolAlsoOfWhatGuestsOfTwoHostsShare(t *testing.T) {
	leftToTestHosts(t)
	t.Parallel()
	c := startCluster(t, "hv1", "hv2")
	admin, h1, h2 := c.Registry.Caller(), c.Hosts[0], c.Hosts[1]
	ctl(t, admin, "type", "create", "clustered", "--multiattach")
	g1, g2 := c.guest(t, h1), c.guest(t, h2)
	both, single, lone := c.volume(t, h1, "both", sharedPool, "clustered"), c.volume(t, h1, "single", sharedPool, "default"), c.volume(t, h2, "lone", sharedPool, "default")
	writers := []writer{
		{g1, both, g1.attach(t, h1.Caller, both, 0)},
		{g2, both, g2.attach(t, h2.Caller, both, 1)},
		{g1, single, g1.attach(t, h1.Caller, single, 1)},
	}
	for _, w := range writers {
		w.write(t, w.at)
	}
	before := read(t, lone.Location.Path)

	drain := []string{"pool", "drain", sharedPool, "--to", newSharedPool}
	c.assertStays(t, both.Name, drain...)
	c.assertStays(t, "", append(drain, "--pause-all")...)
	began := time.Now()
	ctl(t, admin, append(drain, "--pause-all", "--parallel", "2", "--bandwidth", "8MiB/s", "--delete-source")...)
	ended := time.Now()

	now := c.assertDrained(t, map[string]string{both.Name: api.MethodSave, single.Name: api.MethodOverlay, lone.Name: "offline"})
	assertAwake(t, c, g1, writers[0].at, g2, writers[1].at)
	for _, w := range writers {
		if err := w.WaitWriting(t.Context(), w.at, 50); err != nil {
			t.Errorf("guest %s at volume %s: %v", w.Name, w.volume.Name, err)
		}
		pace := w.History(w.at).Between(began, ended)
		t.Logf("guest %s at volume %s: %d writes in the %s of the drain, and a silence of %s", w.Name, w.volume.Name, pace.Acked, ended.Sub(began).Round(time.Millisecond), pace.LongestGap.Round(time.Millisecond))
		if pace.Acked < 50 {
			t.Errorf("guest %s did not write to volume %s while the pool was drained", w.Name, w.volume.Name)
		}
	}
	for _, w := range writers {
		w.quiesce(t, w.at)
	}
	for _, w := range writers {
		assertHolds(t, w.volume, now[w.volume.Name], w.History(w.at))
	}
	if !bytes.Equal(before, read(t, now[lone.Name].Path)) {
		t.Errorf("volume %s has other bytes at %s than it had at %s", lone.Name, now[lone.Name].Path, lone.Location.Path)
	}
}

// assertDrained claims that the drain has moved each of these volumes once, by the method that is
// given here, all that names them follows, and nothing is left in the pool. It returns where they
// are.
func (c *cluster) assertDrained(t *testing.T, methods map[string]string) map[string]api.Location {
	t.Helper()
	admin := c.Registry.Caller()
	d := c.drain(t)
	if d.State != api.DrainDone || len(d.Volumes) != len(methods) {
		t.Errorf("the drain is %s with %d volumes, want it done with %d", d.State, len(d.Volumes), len(methods))
	}
	for _, v := range d.Volumes {
		moves := get[[]api.Migration](t, admin, "migrations", "migration", "list", "--all", "--volume", v.VolumeName)
		if v.State != api.DrainVolumeMoved || len(moves) != 1 || moves[0].Method != methods[v.VolumeName] {
			t.Errorf("volume %s is %s (%v), by %+v; want it moved once, by %s", v.VolumeName, v.State, v.Error, moves, methods[v.VolumeName])
		}
	}
	now := map[string]api.Location{}
	for _, v := range get[[]api.Volume](t, admin, "volumes", "volume", "list", "--pool", newSharedPool) {
		now[v.Name] = v.Location
		for _, a := range v.Attachments {
			if a.Location != v.Location {
				t.Errorf("volume %s is at %+v, and attachment %s at %+v", v.Name, v.Location, a.ID, a.Location)
			}
		}
	}
	if left := get[[]api.Volume](t, admin, "volumes", "volume", "list", "--pool", sharedPool); len(left) > 0 || len(now) != len(methods) {
		t.Errorf("in pool %s there are %+v, and in pool %s %+v", sharedPool, left, newSharedPool, now)
	}
	old := filepath.Join(c.Shared, "pool-"+sharedPool)
	eventually(t, "the sources are deleted", func() bool { // the last thing that a move does, behind its end at the registry
		left, err := os.ReadDir(old)
		return err == nil && len(left) == 0
	})
	return now
}

// writer is a guest that writes to a volume, and the name that it has for that disk.
type writer struct {
	*guest
	volume disk
	at     string
}

// assertStays claims which volume stays by the plan of a drain, "" for none, and that the plan says
// what would move it.
func (c *cluster) assertStays(t *testing.T, name string, drain ...string) {
	t.Helper()
	type plan struct {
		VolumeName string     `json:"volume_name"`
		Error      *api.Error `json:"error"`
	}
	stays := ""
	for _, p := range get[[]plan](t, c.Registry.Caller(), "plans", append(drain, "--dry-run")...) {
		if p.Error == nil {
			continue
		}
		stays += p.VolumeName
		if p.Error.Code != api.CodeMultiattached || !strings.Contains(p.Error.Message, "--pause-all") {
			t.Errorf("volume %s stays: %v; want it to stay as multiattached, and to move with --pause-all", p.VolumeName, p.Error)
		}
	}
	if stays != name {
		t.Errorf("by `%s` there stays %q, want %q", strings.Join(drain, " "), stays, name)
	}
}
