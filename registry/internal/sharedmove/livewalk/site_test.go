// SPDX-License-Identifier: Apache-2.0

package livewalk_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/seedtest"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/storetest"
)

func TestMain(m *testing.M) { relaytest.Main(m) }

const (
	srcPath = "/old/v"
	hostsOf = "ab"
)

// guests has the instances with the volume, by host.
var guests = map[string][]string{"a": {"g1", "g2"}, "b": {"g3"}}

// site is a registry with the loop, and hosts that execute calls step by step, all in one bubble.
// The order of events is random.
type site struct {
	*relaytest.Site
	hosts map[string]*daemon
	// mortal kills the loop at a moment that the test chooses; nil never.
	mortal *relaytest.Mortal

	// random is only for the goroutine of the walk, which draws while all others are blocked. A
	// host's random choice for a task follows from the seed and the task.
	random *rand.Rand
	seed   uint64

	// mu guards the shared state of the hosts.
	mu     sync.Mutex
	images map[string]*image
	// acked has the last acknowledged write of each block.
	acked             image
	writes, processes int
	broken            []string
	// followed has the commands that the operator has executed.
	followed []string
	// happened has the calls of the hosts, with their times.
	happened []string
}

// bubble runs f with a site with the hosts a and b, which share the pools old and new, and volume v
// in old with all guests.
func bubble(t *testing.T, seed uint64, f func(s *site)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "registry.db")
	synctest.Test(t, func(t *testing.T) {
		s := &site{
			Site: relaytest.New(t, path), hosts: map[string]*daemon{},
			random: seedtest.Rand(seed), seed: seed, images: map[string]*image{srcPath: {}},
		}
		defer s.end()
		for _, host := range hostsOf {
			d := newDaemon(s, string(host))
			s.hosts[d.Name] = d
			for _, name := range guests[d.Name] {
				g := &guest{name: name, at: srcPath}
				s.begin(g)
				d.guests = append(d.guests, g)
			}
			d.Start()
		}
		at := storetest.At(srcPath)
		at.SizeBytes = blocks * blockBytes
		s.ShareVolume("v", at, guests)
		synctest.Wait()
		s.start()
		f(s)
	})
}

func (s *site) end() {
	s.End()
	for _, what := range s.broken {
		s.T.Error(what)
	}
}

func (s *site) start() { s.RunSharedMoves(s.mortal) }

func (s *site) restart() {
	s.T.Helper()
	s.Replace(func() { s.mortal = nil }, s.start)
}

// move begins to move v to pool new, and returns the migration's id.
func (s *site) move() string {
	s.T.Helper()
	in := api.MigrationTarget{ToPool: "new", DeleteSource: true}
	return expect.Value(s.Store.LiveMoves.Register(s.T.Context(), store.Call{}, "v", in, []string{s.hosts["a"].ID, s.hosts["b"].ID}))(s.T).ID
}

func (s *site) migration(id string) api.Migration {
	s.T.Helper()
	return expect.Value(s.Store.Migrations.Get(s.T.Context(), id, store.Viewer{}))(s.T)
}

// each calls yield with all guests. The caller must hold mu.
func (s *site) each(yield func(*daemon, *guest)) {
	for _, host := range hostsOf {
		for _, g := range s.hosts[string(host)].guests {
			yield(s.hosts[string(host)], g)
		}
	}
}

// wrong records a violation. The caller must hold mu.
func (s *site) wrong(format string, args ...any) {
	s.broken = append(s.broken, fmt.Sprintf(format, args...))
}

// wantWhole checks the end of a move: no lock, every guest with the volume at its location, every
// acknowledged write, and nothing else left.
func (s *site) wantWhole(id string) {
	s.T.Helper()
	m := s.migration(id)
	v := expect.Value(s.Store.Volumes.Get(s.T.Context(), "v", store.Viewer{}))(s.T)
	want := srcPath
	if m.State == api.MigrationCompleted {
		want = "/new/" + m.Dst.Name
	}
	if v.Location.Path != want || v.MigrationID != "" || len(v.Attachments) != 3 {
		s.T.Errorf("after %s volume = %+v", m.State, v)
	}
	for _, i := range expect.Value(s.Store.Instances.All(s.T.Context(), store.Viewer{}))(s.T) {
		if i.Locked {
			s.T.Errorf("after %s instance %s is locked: %s", m.State, i.Name, i.LockReason)
		}
	}
	s.WantTrail(id, m.State)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.images) != 1 || s.images[want] == nil {
		s.T.Fatalf("after %s images = %v, want %s", m.State, s.images, want)
	}
	for b, n := range s.acked {
		if s.images[want][b] < n {
			s.T.Errorf("after %s block %d is of write %d, and a guest was answered for %d", m.State, b, s.images[want][b], n)
		}
	}
	s.each(func(d *daemon, g *guest) {
		if g.still || g.memory || g.guarded() || g.at != want || len(g.maps) > 0 {
			s.T.Errorf("after %s guest %s of host %s is %+v", m.State, g.name, d.Name, *g)
		}
	})
}
