// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// A shareable disk that one guest has can be overlaid by nobody, and moves in two ways: by QEMU's
// mirror, which is what is taken where nobody says how, and in rounds. The guest writes all the
// time; what each way cost it is printed.
func TestShareableVolumeOfOneGuestMovesByTheMirrorAndInRounds(t *testing.T) {
	t.Parallel()
	leftToTestLiveShared(t)
	c := startLiveCluster(t, "hv1")
	h := c.Hosts[0]
	g := c.guest(t, h)
	d := c.volumeOf(t, h, "db", sharedPool, "clustered", 256<<20)
	disk := g.attach(t, h.Caller, d, 0)
	g.write(t, disk)
	at := sharedPool
	for range 2 {
		for _, way := range []struct {
			method string
			flags  []string
		}{
			{api.MethodMirror, []string{"--verify", "full"}},
			{api.MethodLive, []string{"--live-shared", "--max-pause", "1m", "--yes"}},
		} {
			to := newSharedPool
			if at == newSharedPool {
				to = sharedPool
			}
			began := time.Now()
			ctl(t, c.Registry.Caller(), append([]string{"volume", "migrate", d.Name, "--to-pool", to, "--delete-source"}, way.flags...)...)
			ended := time.Now()
			if err := g.WaitWriting(t.Context(), disk, 50); err != nil {
				t.Fatal(err)
			}
			now := get[api.Volume](t, c.Registry.Caller(), "volume", "volume", "show", d.Name)
			moves := get[[]api.Migration](t, c.Registry.Caller(), "migrations", "migration", "list", "--all", "--volume", d.Name)
			if now.Location.Pool != to || moves[0].Method != way.method {
				t.Errorf("by %s the volume went to %s", moves[0].Method, now.Location.Pool)
			}
			pace := g.History(disk).Between(began, ended)
			t.Logf("%s: %s, %d writes meanwhile, a silence of %s", way.method, ended.Sub(began).Round(time.Millisecond), pace.Acked, pace.LongestGap.Round(time.Millisecond))
			at = to
		}
	}
	g.quiesce(t, disk)
	assertHolds(t, d, get[api.Volume](t, c.Registry.Caller(), "volume", "volume", "show", d.Name).Location, g.History(disk))
}
