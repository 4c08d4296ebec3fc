// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/test/lab"
	"github.com/volferry/volferry/test/site"
)

// The deaths in the middle of a move while all guests write. There are two hosts with a guest
// each; a daemon, the registry, libvirtd or a guest is killed with SIGKILL, and what is no guest
// is started again. After each every write that a guest was told is done is there, nothing is
// left of the move, and all guests run at one place.

// deadly is a moment of such a move: the daemon of the host that is struck has passed a point
// so many times.
type deadly struct {
	phase, point string
	pass         int
	// slow: what dies is killed while a copy is under way, which is slow therefore.
	slow bool
	// running: the guest of the host has a process then.
	running bool
	// after: the registry has decided for the destination.
	after bool
}

// killable is what may die, and how: when a host has passed the point.
type killable struct {
	name string
	// itself: the daemon ends itself at the point.
	itself bool
	kill   func(*testing.T, *sharedLive, *site.Host)
	then   func(*testing.T, *sharedLive) // when it is there again, if anything is to be done
	// costs are the phases in which the move may end where it began, for the design says so.
	costs []string
	// loses: where it dies after the decision, and another guest runs on, an operator has to give
	// up what the guest had in memory.
	loses bool
}

// wayTimeout is how long a move may take to a moment.
const wayTimeout = 3 * time.Minute

// pointLog is the file in which a host's daemon notes the points that it passes.
func pointLog(h *site.Host) string { return filepath.Join(h.Dir, "points") }

// passes is how often a daemon has passed a point since it was armed.
func passes(t *testing.T, h *site.Host, point string) int {
	t.Helper()
	text, err := os.ReadFile(pointLog(h))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return bytes.Count(append([]byte{'\n'}, text...), []byte("\n"+point+"\n"))
}

// restart puts another daemon in the place of a host's, which notes its points, with these
// variables besides. It returns when the daemon hears the registry and is heard by it.
func (s *sharedLive) restart(t *testing.T, h *site.Host, env ...string) {
	t.Helper()
	h.KillDaemon()
	if err := h.StartDaemon(t.Context(), append(env, "VOLFERRY_FAULT_LOG="+pointLog(h))...); err != nil {
		t.Fatal(err)
	}
	s.hears(t, h)
}

// hears waits until a host's daemon hears the registry, and has answered the registry: a host
// that has reported, and has not asked for tasks yet, is not there for a move.
func (s *sharedLive) hears(t *testing.T, h *site.Host) {
	t.Helper()
	eventually(t, "host "+h.Name+" hears the registry", func() bool {
		return slices.ContainsFunc(get[api.Status](t, h.Caller, "status", "status").Parts, func(p api.Check) bool {
			return p.Name == "registry" && p.Status == "ok"
		})
	})
	eventually(t, "host "+h.Name+" asks the registry for work", func() bool {
		_, err := s.Registry.Caller().Ctl(t.Context(), "op", "list", "--host", h.Name)
		return err == nil
	})
}

// arm has all daemons note their points anew, and the one of the host h end itself at the
// moment if it is to.
func (s *sharedLive) arm(t *testing.T, h *site.Host, m deadly, itself bool) {
	t.Helper()
	for _, each := range s.Hosts {
		if err := os.RemoveAll(pointLog(each)); err != nil {
			t.Fatal(err)
		}
		if itself && each == h {
			s.restart(t, each, "VOLFERRY_FAULT="+m.point+"=kill@"+strconv.Itoa(m.pass))
			continue
		}
		s.restart(t, each)
	}
}

// await returns when the daemon of a host has passed the point of the moment.
func (s *sharedLive) await(t *testing.T, h *site.Host, m deadly, id string) {
	t.Helper()
	deadline := time.Now().Add(wayTimeout)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for looked := time.Now(); passes(t, h, m.point) < m.pass; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("host %s does not pass %s", h.Name, m.point)
		}
		if time.Since(looked) < time.Second {
			continue
		}
		looked = time.Now()
		if now, err := s.Registry.Caller().Migration(t.Context(), id); err == nil && now.State.Final() {
			t.Fatalf("the migration is %s (%v), and host %s has passed %s %d times", now.State, now.Error, h.Name, m.point, passes(t, h, m.point))
		}
	}
}

// elsewhere is the pool that the volume is not in.
func (s *sharedLive) elsewhere(t *testing.T) string {
	t.Helper()
	if s.now(t).Location.Pool == sharedPool {
		return newSharedPool
	}
	return sharedPool
}

// move begins to move the volume to the pool that it is not in, and returns the migration's id.
func (s *sharedLive) move(t *testing.T, flags ...string) (id string) {
	t.Helper()
	s.before = s.now(t)
	args := []string{"--no-wait", "volume", "migrate", s.d.Name, "--to-pool", s.elsewhere(t), "--delete-source", "--live-shared", "--yes"}
	return strings.TrimSpace(ctl(t, s.Registry.Caller(), append(args, flags...)...))
}

// anyPause is for moves whose pause may take what it takes on a busy machine.
var anyPause = []string{"--max-pause", "5m"}

// struck moves the volume, has something die at the moment, and claims that all is as it has to
// be then.
func (s *sharedLive) struck(t *testing.T, h *site.Host, m deadly, k killable, flags ...string) {
	t.Helper()
	s.arm(t, h, m, k.itself)
	if len(flags) == 0 {
		flags = anyPause
		if m.slow {
			flags = append(slices.Clone(flags), "--bandwidth", "8MiB/s")
		}
	}
	id := s.move(t, flags...)
	if k.itself {
		timed, stop := context.WithTimeout(t.Context(), wayTimeout)
		defer stop()
		if err := h.DaemonDied(timed); err != nil {
			t.Fatalf("the way does not lead past %s: %v", m.point, err)
		}
		s.restart(t, h)
	} else {
		s.await(t, h, m, id)
		k.kill(t, s, h)
	}
	if k.then != nil {
		k.then(t, s)
	}
	if k.loses && m.after {
		s.givesUpMemory(t, id)
	}
	s.settled(t, id, slices.Contains(k.costs, m.phase))
}

// givesUpMemory says the operator's word where the move stops for it.
func (s *sharedLive) givesUpMemory(t *testing.T, id string) {
	t.Helper()
	admin := s.Registry.Caller()
	_, _ = admin.Ctl(t.Context(), "--progress", "none", "migration", "watch", id) // what it has come to is looked at
	m, err := admin.Migration(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if m.State == api.MigrationNeedsOperator {
		t.Logf("the migration stops: %v", m.Error)
		ctl(t, admin, "migration", "complete", id, "--discard-memory")
	}
}

// settled waits for the end of a move in which something died, and claims that nothing was
// lost by it and nothing is left.
func (s *sharedLive) settled(t *testing.T, id string, mayBeCancelled bool) {
	t.Helper()
	admin := s.Registry.Caller()
	_, err := admin.Ctl(t.Context(), "--progress", "none", "migration", "watch", id)
	end, showErr := admin.Migration(t.Context(), id)
	if showErr != nil || !end.State.Final() {
		t.Fatalf("the migration does not end by itself (%v): %s %s %v", showErr, end.State, end.Phase, end.Error)
	}
	t.Logf("the migration is %s: %v", end.State, end.Error)
	if end.State != api.MigrationCompleted && (!mayBeCancelled || end.State != api.MigrationCancelled) {
		t.Fatalf("the migration is %s (%v): %v", end.State, err, end.Error)
	}
	now := s.now(t)
	want, generation := s.before.Location, s.before.Generation
	if end.State == api.MigrationCompleted {
		want, generation = end.Dst, generation+1
	}
	if now.Location != want || now.Generation != generation || now.MigrationID != "" {
		t.Errorf("the migration is %s, and the volume %+v", end.State, now)
	}
	for _, a := range now.Attachments {
		if a.Location != now.Location {
			t.Errorf("attachment %s is at %+v, and the volume at %+v", a.ID, a.Location, now.Location)
		}
	}
	s.startWhatIsOff(t)
	for g, disk := range map[*guest]string{s.g1: s.disk1, s.g2: s.disk2} {
		if limits := limitsOf(t, g, disk); limits != "0 0 0" {
			t.Errorf("guest %s is held back: %s", g.Name, limits)
		}
	}
	s.assertOver(t)
	s.assertNothingLeft(t)
	s.g1.write(t, s.disk1)
	s.g2.write(t, s.disk2)
}

// startWhatIsOff starts a guest that was killed, or has lost what it remembered.
func (s *sharedLive) startWhatIsOff(t *testing.T) {
	t.Helper()
	for _, g := range []*guest{s.g1, s.g2} {
		state, err := g.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if state != "shut off" {
			continue
		}
		if err := g.Start(t.Context()); err != nil {
			t.Fatalf("guest %s cannot be started: %v", g.Name, err)
		}
		t.Logf("guest %s was off", g.Name)
	}
}

// assertNothingLeft claims that of the volume there is one image, and of the move no cursor and no
// socket.
func (s *sharedLive) assertNothingLeft(t *testing.T) {
	t.Helper()
	at := s.now(t).Location.Path
	images, err := filepath.Glob(filepath.Join(s.Shared, "pool-*", "*"))
	if err != nil || len(images) != 1 || images[0] != at {
		t.Errorf("the volume is at %s, and there is %v (%v)", at, images, err)
	}
	for _, g := range []*guest{s.g1, s.g2} {
		assertNothingIn(t, g.host, filepath.Join(g.host.State(), "cursors"))
		sockets, err := filepath.Glob(filepath.Join(g.host.Libvirtd.StateDir(), "*", "volferry*"))
		if err != nil || len(sockets) > 0 {
			t.Errorf("host %s has sockets %v left (%v)", g.host.Name, sockets, err)
		}
	}
}

// limitsOf are the limits on the bytes of a disk of a guest: total, read, write.
func limitsOf(t *testing.T, g *guest, disk string) string {
	t.Helper()
	out, err := g.host.Libvirtd.Virsh(t.Context(), "blkdeviotune", g.Name, disk)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(line, ":")
		if strings.HasSuffix(strings.TrimSpace(name), "bytes_sec") {
			values = append(values, strings.TrimSpace(value))
		}
	}
	return strings.Join(values, " ")
}

// killQEMU kills a guest's process as the kernel does when memory runs out.
func killQEMU(t *testing.T, g *guest) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.host.Libvirtd.RunDir, "qemu", g.Name+".pid"))
	if os.IsNotExist(err) {
		t.Log("its process had ended before")
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// guestOf is the guest of a host.
func (s *sharedLive) guestOf(h *site.Host) *guest {
	if s.g1.host == h {
		return s.g1
	}
	return s.g2
}

// Where not all guests are suspended by the time that what died is back, they are let run on, and
// the move is begun anew or taken back. A guest that dies suspended, or as it is saved, takes what
// is in its memory along: the others are let go on, and the move is taken back.
var (
	aDaemon   = killable{name: "daemon", itself: true, costs: []string{"the suspension"}}
	aLibvirtd = killable{name: "libvirtd", kill: func(t *testing.T, _ *sharedLive, h *site.Host) {
		if err := errors.Join(h.Libvirtd.Kill(), h.Libvirtd.Restart(t.Context())); err != nil {
			t.Fatal(err)
		}
	}, costs: []string{"the suspension"}}
	aRegistry = killable{name: "registry", kill: func(t *testing.T, s *sharedLive, _ *site.Host) {
		s.Registry.Kill()
		if err := s.Registry.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}, costs: []string{"the suspension"}}
	aGuest = killable{
		name:  "guest",
		kill:  func(t *testing.T, s *sharedLive, h *site.Host) { killQEMU(t, s.guestOf(h)) },
		costs: []string{"the suspension", "the last read", "the last copy", "the save"},
		loses: true,
	}
)

// The guest that is killed has its bitmap just then, and the libvirtd of the host made it.
func TestMoveWhileAllGuestsWriteOutlivesADaemonLibvirtdAndAGuest(t *testing.T) {
	t.Parallel()
	s := startSharedLive(t, "hv1", "hv2")
	tracked := deadly{point: "live_track.track.after_do", pass: 1}
	t.Run("daemon in the last copy", func(t *testing.T) {
		s.struck(t, s.Hosts[1], deadly{point: "live_last.copy_last.after_do", pass: 1}, aDaemon)
	})
	t.Run("libvirtd as the bitmaps are made", func(t *testing.T) {
		leftToTestLiveShared(t)
		s.struck(t, s.Hosts[0], tracked, aLibvirtd)
	})
	t.Run("guest as the bitmaps are made", func(t *testing.T) {
		leftToTestLiveShared(t)
		s.struck(t, s.Hosts[0], tracked, aGuest)
	})
}

// light is a writer whose rounds end.
var light = lab.Load{Interval: 500 * time.Millisecond, Depth: 2}

// pace has both guests write so much from now on.
func (s *sharedLive) pace(t *testing.T, l lab.Load) {
	t.Helper()
	for g, disk := range map[*guest]string{s.g1: s.disk1, s.g2: s.disk2} {
		if err := g.Write(disk, l); err != nil {
			t.Fatal(err)
		}
	}
}
