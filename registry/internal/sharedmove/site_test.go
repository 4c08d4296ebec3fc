// SPDX-License-Identifier: Apache-2.0

package sharedmove_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/storetest"
)

func TestMain(m *testing.M) { relaytest.Main(m) }

// guests has the instances of the site, by host; all three have the volume.
var guests = map[string][]string{"a": {"g1", "g2"}, "b": {"g3"}}

// site is a registry with the loop, and hosts that execute calls, all in one bubble.
type site struct {
	*relaytest.Site
	hosts map[string]*daemon
	// mortal kills the loop at a moment that the test chooses; nil never.
	mortal *relaytest.Mortal

	// chance returns the end of a call and its duration, in a walk; else nil.
	chance func(d *daemon, verb string, task api.Task) (end string, takes time.Duration)
	// apart returns how long a host delays a task in a walk. No two events may happen at the same
	// moment, because the seed does not determine their order.
	apart func(d *daemon, task api.Task) time.Duration
	// happened has the calls of the hosts of a walk, with their times.
	happened []string

	// mu guards the shared state of the hosts.
	mu sync.Mutex
	// images has the existing files of the volume.
	images map[string]bool
	broken []string
	// stopped is the time of the first suspend.
	stopped time.Time
}

// bubble runs f with a site with the present hosts a and b, which share the pools old and new, and
// volume v in old with all guests.
func bubble(t *testing.T, f func(s *site)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "registry.db")
	synctest.Test(t, func(t *testing.T) {
		s := &site{Site: relaytest.New(t, path), hosts: map[string]*daemon{}, images: map[string]bool{"/old/v": true}}
		defer s.end()
		for _, name := range []string{"a", "b"} {
			s.hosts[name] = newDaemon(s, name)
			s.hosts[name].Start()
		}
		s.found()
		synctest.Wait()
		s.begin()
		f(s)
	})
}

func (s *site) end() {
	s.End()
	for _, what := range s.broken {
		s.T.Error(what)
	}
}

func guestID(name string) string { return storetest.NamedID(storetest.InstanceKind, name) }

func attachmentID(guest string) string { return storetest.NamedID(storetest.AttachmentKind, guest) }

// found makes the volume and its attachments.
func (s *site) found() {
	s.T.Helper()
	s.ShareVolume("v", storetest.At("/old/v"), guests)
	for host, names := range guests {
		for _, name := range names {
			s.hosts[host].guests[guestID(name)] = &guest{process: true, running: true, at: "/old/v"}
		}
	}
}

func (s *site) begin() { s.RunSharedMoves(s.mortal) }

func (s *site) restart() {
	s.T.Helper()
	s.Replace(func() { s.mortal = nil }, s.begin)
}

// restartDead starts another loop if mortal has killed the present one.
func (s *site) restartDead() {
	s.T.Helper()
	if s.mortal != nil && s.mortal.IsDead() {
		s.restart()
	}
}

// move begins to move v to pool new, and returns the migration's id.
func (s *site) move() string {
	s.T.Helper()
	in := api.MigrationTarget{ToPool: "new", PauseAll: true, DeleteSource: true}
	return expect.Value(s.Store.Pauses.Register(s.T.Context(), store.Call{}, "v", in, []string{s.hosts["a"].ID, s.hosts["b"].ID}))(s.T).ID
}

func (s *site) cancel(id string) error {
	_, err := s.Store.Pauses.Cancel(s.T.Context(), store.Call{}, id, nil)
	return err
}

func (s *site) fence(name string) {
	s.T.Helper()
	s.hosts[name].Away()
	s.mu.Lock()
	s.hosts[name].fenced = true
	for _, g := range s.hosts[name].guests {
		g.process, g.running = false, false // its power is off
	}
	s.mu.Unlock()
	expect.Value(s.Store.Hosts.Fence(s.T.Context(), store.Call{}, name, api.HostFence{Evidence: "its power is off", EvenIfUp: true}))(s.T)
}

func (s *site) state(id string) string {
	s.T.Helper()
	m := expect.Value(s.Store.Migrations.Get(s.T.Context(), id, store.Viewer{}))(s.T)
	if m.Error != nil {
		return string(m.State) + " " + string(m.Error.Code)
	}
	return string(m.State)
}

// untilPhase waits for a phase of the migration, for at most a minute.
func (s *site) untilPhase(id, phase string) {
	s.T.Helper()
	for range 600 {
		if m := expect.Value(s.Store.Migrations.Get(s.T.Context(), id, store.Viewer{}))(s.T); m.Phase == phase {
			return
		}
		relaytest.Pass(100 * time.Millisecond)
	}
	s.T.Fatalf("the migration is not %s within a minute: %s", phase, s.state(id))
}

// until waits for the end of the migration, for at most an hour of the bubble.
func (s *site) until(id string) api.Migration {
	s.T.Helper()
	for range 3600 {
		if m := expect.Value(s.Store.Migrations.Get(s.T.Context(), id, store.Viewer{}))(s.T); m.State.Final() {
			relaytest.Pass(2 * time.Second)
			return expect.Value(s.Store.Migrations.Get(s.T.Context(), id, store.Viewer{}))(s.T)
		}
		relaytest.Pass(time.Second)
		s.restartDead()
	}
	s.T.Fatalf("the migration is not over within an hour: %s: %+v", s.state(id), expect.Value(s.Store.Pauses.Get(s.T.Context(), id))(s.T))
	return api.Migration{}
}

// wantWhole checks the end of a move: no lock, every guest as before with the volume at its
// location, and no other image except a src that could not be deleted.
func (s *site) wantWhole(id string) {
	s.T.Helper()
	ctx := s.T.Context()
	m := expect.Value(s.Store.Migrations.Get(ctx, id, store.Viewer{}))(s.T)
	v := expect.Value(s.Store.Volumes.Get(ctx, "v", store.Viewer{}))(s.T)
	want := "/old/v"
	if m.State == api.MigrationCompleted {
		want = "/new/" + m.Dst.Name
	}
	if v.Location.Path != want || v.MigrationID != "" || len(v.Attachments) != 3 {
		s.T.Errorf("after %s volume = %+v", m.State, v)
	}
	for _, i := range expect.Value(s.Store.Instances.All(ctx, store.Viewer{}))(s.T) {
		if i.Locked {
			s.T.Errorf("after %s instance %s is locked: %s", m.State, i.Name, i.LockReason)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.hosts {
		for name, g := range d.guests {
			if g.running == g.off || g.memory || g.at != want {
				s.T.Errorf("after %s guest %s is %+v, want it running on %s, or off for a reason", m.State, name, *g, want)
			}
		}
	}
	images := maps.Clone(s.images)
	if m.State == api.MigrationCompleted && m.Error != nil { // the error of a src that could not be deleted
		delete(images, "/old/v")
	}
	if len(images) != 1 || !images[want] {
		s.T.Errorf("after %s images = %v, want %s", m.State, s.images, want)
	}
}

// wrong records a violation. The caller must hold mu.
func (s *site) wrong(format string, args ...any) {
	s.broken = append(s.broken, fmt.Sprintf(format, args...))
}
