// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab/workload"
)

// Guests of two hosts, and two of one host, write to a volume from its first block copied to the
// last. Every write that they were told is done is at the destination, and nothing is left of
// the move on the hosts.
func TestVolumeSharedByTwoHostsMovesWhileAllItsGuestsWrite(t *testing.T) {
	t.Parallel()
	leftToTestHosts(t)
	moveWhileAllWrite(t, "hv1", "hv2")
}

func TestVolumeSharedOnOneHostMovesWhileItsGuestsWrite(t *testing.T) {
	t.Parallel()
	leftToTestLiveShared(t)
	moveWhileAllWrite(t, "hv1")
}

// sharedLive are two guests that write to one volume.
type sharedLive struct {
	*cluster
	d            disk
	g1, g2       *guest
	disk1, disk2 string
	before       api.Volume
}

// startSharedLive starts hosts with these names, with a guest on the first and on the last, which
// write to a volume, each to its half.
func startSharedLive(t *testing.T, names ...string) *sharedLive {
	t.Helper()
	return startSharedLiveOf(t, shape{}, names...)
}

// shape is a shared volume, and which of its blocks its guests write.
type shape struct {
	bytes       int64 // 0 is volumeBytes
	interleaved bool  // the guests have its blocks in turn
	region      bool  // its last third is for a region
	mix         workload.Mix
}

// startLiveCluster starts a cluster whose hosts can follow what guests write, with a type of
// volumes that guests share.
func startLiveCluster(t *testing.T, names ...string) *cluster {
	t.Helper()
	c := startCluster(t, names...)
	ctl(t, c.Registry.Caller(), "type", "create", "clustered", "--multiattach")
	return c
}

func startSharedLiveOf(t *testing.T, of shape, names ...string) *sharedLive {
	t.Helper()
	s := &sharedLive{cluster: startLiveCluster(t, names...)}
	h1, h2 := s.Hosts[0], s.Hosts[len(s.Hosts)-1]
	s.g1, s.g2 = s.guest(t, h1), s.guest(t, h2)
	s.d = s.volumeOf(t, h1, "db", sharedPool, "clustered", cmp.Or(of.bytes, volumeBytes))
	s.d.lab.Interleaved, s.d.lab.Mix = of.interleaved, of.mix
	if of.region {
		s.d.lab.Parts = 3
		emptyRegion(t, s.d)
	}
	s.disk1, s.disk2 = s.g1.attach(t, h1.Caller, s.d, 0), s.g2.attach(t, h2.Caller, s.d, 1)
	s.g1.write(t, s.disk1)
	s.g2.write(t, s.disk2)
	s.before = s.now(t)
	return s
}

func (s *sharedLive) now(t *testing.T) api.Volume {
	t.Helper()
	return get[api.Volume](t, s.Registry.Caller(), "volume", "volume", "show", s.d.Name)
}

// migrate begins the move.
func (s *sharedLive) migrate(t *testing.T, flags ...string) string {
	t.Helper()
	return ctl(t, s.Registry.Caller(), append([]string{"volume", "migrate", s.d.Name, "--to-pool", newSharedPool, "--live-shared", "--max-pause", "30s", "--yes"}, flags...)...)
}

// assertOver claims that both guests go on writing, that nothing of the move is left in them or on
// the hosts, and that the volume has all writes of both.
func (s *sharedLive) assertOver(t *testing.T) {
	t.Helper()
	assertAwake(t, s.cluster, s.g1, s.disk1, s.g2, s.disk2)
	for _, g := range []*guest{s.g1, s.g2} {
		blocks, err := g.host.Libvirtd.Virsh(t.Context(), "qemu-monitor-command", g.Name, `{"execute":"query-block"}`)
		if err != nil || strings.Contains(blocks, "volferry-") {
			t.Errorf("guest %s has bitmaps left (%v): %s", g.Name, err, blocks)
		}
	}
	s.g1.quiesce(t, s.disk1)
	s.g2.quiesce(t, s.disk2)
	at := s.now(t).Location
	assertHolds(t, s.d, at, s.g1.History(s.disk1))
	assertHolds(t, s.d, at, s.g2.History(s.disk2))
}

// The guests of two hosts write to the blocks of a volume in turn, so that no dirty unit is of one
// of them alone, and each host copies what the other has just written.
func TestVolumeWhoseBlocksTwoHostsWriteInTurnMovesWhileTheyDo(t *testing.T) {
	t.Parallel()
	leftToTestLiveShared(t)
	moveLive(t, startSharedLiveOf(t, shape{interleaved: true}, "hv1", "hv2"))
}

func moveWhileAllWrite(t *testing.T, names ...string) {
	t.Helper()
	moveLive(t, startSharedLive(t, names...))
}

// moveLive moves the volume of guests that write all the time, and returns for how long each was
// silent.
func moveLive(t *testing.T, s *sharedLive) (silences []time.Duration) {
	t.Helper()
	began := time.Now()
	s.migrate(t)
	ended := time.Now()
	now := s.now(t)
	if now.Location.Pool != newSharedPool || now.Generation != s.before.Generation+1 {
		t.Errorf("after the move the volume is %+v", now)
	}
	for _, a := range now.Attachments {
		if a.Location != now.Location {
			t.Errorf("attachment %s is at %+v", a.ID, a.Location)
		}
	}
	s.assertOver(t)
	for g, disk := range map[*guest]string{s.g1: s.disk1, s.g2: s.disk2} {
		pace := g.History(disk).Between(began, ended)
		t.Logf("guest %s: %d writes in the %s of the move, and a silence of %s", g.Name, pace.Acked, ended.Sub(began).Round(time.Millisecond), pace.LongestGap.Round(time.Millisecond))
		silences = append(silences, pace.LongestGap)
		if pace.Acked < 50 {
			t.Errorf("guest %s did not write while its volume was copied", g.Name)
		}
	}
	moves := get[[]api.Migration](t, s.Registry.Caller(), "migrations", "migration", "list", "--all", "--volume", s.d.Name)
	m := get[api.Migration](t, s.Registry.Caller(), "migration", "migration", "show", moves[0].ID)
	last := map[string]time.Time{}
	for _, step := range m.PauseSteps {
		took := ""
		if step.TookMS > 0 {
			took = fmt.Sprintf(" (the host: %d ms)", step.TookMS)
		}
		t.Logf("pause: +%5d ms %s %s %s%s", step.At.Sub(m.PauseSteps[0].At).Milliseconds(), step.Reached, step.Host, step.Instance, took)
		last[step.Reached] = step.At
	}
	if api.StoodStill(m.PauseSteps) <= 0 || last["restored"].IsZero() {
		t.Errorf("the steps of the pause are not known: %+v", m.PauseSteps)
	}
	return silences
}

// A daemon dies while its guests are followed, and the move is cancelled then: the guests write
// on, at the place of before.
func TestMoveWhileAllGuestsWriteIsCancelledAfterADaemonDied(t *testing.T) {
	t.Parallel()
	leftToTestLiveShared(t)
	s := startSharedLive(t, "hv1", "hv2")
	id := strings.TrimSpace(s.migrate(t, "--no-wait", "--bandwidth", "2MiB/s"))
	admin := s.Registry.Caller()
	show := func() api.Migration { return get[api.Migration](t, admin, "migration", "migration", "show", id) }
	eventually(t, "the hosts copy", func() bool { return show().Phase == "copying" })
	h2 := s.Hosts[1]
	h2.KillDaemon()
	if err := h2.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctl(t, admin, "migration", "cancel", id)
	if m := show(); m.State != api.MigrationCancelled {
		t.Errorf("the migration is %s: %v", m.State, m.Error)
	}
	if now := s.now(t); now.Location != s.before.Location || now.Generation != s.before.Generation {
		t.Errorf("after the cancel the volume is %+v, and was %+v", now, s.before)
	}
	left, err := filepath.Glob(filepath.Join(s.Shared, "pool-"+newSharedPool, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("in the pool of the destination there is %v (%v)", left, err)
	}
	s.assertOver(t)
}
