// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/registry/internal/drain"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/relay/relaytest"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/storetest"
)

func TestMain(m *testing.M) { relaytest.Main(m) }

// site is a registry with its drains, and hosts that move volumes.
type site struct {
	*relaytest.Site
	hosts map[string]*daemon
}

// bubble runs f with a site with the present hosts a and b, each with the pools fast and slow.
func bubble(t *testing.T, f func(s *site)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "registry.db")
	synctest.Test(t, func(t *testing.T) {
		s := &site{relaytest.New(t, path), map[string]*daemon{}}
		defer s.End()
		for _, name := range []string{"a", "b"} {
			s.hosts[name] = newDaemon(s, name)
			s.hosts[name].Start()
		}
		synctest.Wait()
		s.begin()
		f(s)
	})
}

// begin starts the loop, and returns after its first look. Otherwise the scheduler decides whether
// this look sees the test's next change or the look a second later.
func (s *site) begin() {
	s.Run(drain.New(drain.Config{
		Drains: s.Store.Drains, Tasks: s.Store.Tasks, Volumes: s.Store.Volumes, Instances: s.Store.Instances, Migrations: s.Store.Migrations,
		Relay: s.Relay, Placement: relay.PlacementOf(s.Store.Store, s.Relay.Present),
		MoveShared: relay.SharedMoves{Hosts: s.Store.Hosts, Pauses: s.Store.Pauses, LiveMoves: s.Store.LiveMoves, Relay: s.Relay}.Begin,
		Log:        slog.New(slog.DiscardHandler),
	}))
	synctest.Wait()
}

func (s *site) restart() {
	s.T.Helper()
	s.Replace(func() {}, s.begin)
}

// volume makes an unattached volume on a host, in pool fast.
func (s *site) volume(host, name string) {
	s.T.Helper()
	relaytest.Kit.Available(s.T, s.Store, host, name, "", storetest.At("/fast/"+name))
}

// volumes makes n unattached volumes, called v0 and so on, on the hosts in turn.
func (s *site) volumes(n int, hosts ...string) {
	s.T.Helper()
	for i := range n {
		s.volume(hosts[i%len(hosts)], fmt.Sprint("v", i))
	}
}

// drain drains pool fast, with the guests of shared volumes paused.
func (s *site) drain(parallel int) string {
	s.T.Helper()
	d := expect.Value(s.Store.Drains.Create(s.T.Context(), store.Call{}, "fast", api.PoolDrain{ToPool: "slow", Parallel: parallel, BandwidthBytesPerSecond: 1000, Verify: api.VerifyFull, DeleteSource: true, PauseAll: true}))(s.T)
	return d.ID
}

func (s *site) set(id, to string) {
	s.T.Helper()
	expect.Value(s.Store.Drains.SetState(s.T.Context(), store.Call{}, id, to))(s.T)
}

// states formats a drain like "running: v0 moved, v1 skipped multiattached".
func (s *site) states(id string) string {
	s.T.Helper()
	d := expect.Value(s.Store.Drains.Get(s.T.Context(), id))(s.T)
	lines := []string{}
	for _, v := range d.Volumes {
		line := v.VolumeName + " " + v.State
		if v.Error != nil {
			line += " " + string(v.Error.Code)
		}
		lines = append(lines, line)
	}
	return d.State + ": " + strings.Join(lines, ", ")
}

func (s *site) want(id, want string) {
	s.T.Helper()
	if got := s.states(id); got != want {
		s.T.Errorf("the drain is\n%s, want\n%s", got, want)
	}
}

// until waits for the end of the drain, for at most an hour of the bubble.
func (s *site) until(id string) {
	s.T.Helper()
	for range 3600 {
		if d, err := s.Store.Drains.Get(s.T.Context(), id); err != nil || d.State == api.DrainDone {
			return
		}
		relaytest.Pass(time.Second)
	}
	s.T.Errorf("the drain is not done within an hour: %s", s.states(id))
}

// moves counts all registered migrations of each volume.
func (s *site) moves() map[string]int {
	s.T.Helper()
	all := expect.Value(s.Store.Migrations.All(s.T.Context(), "", true, store.Viewer{}))(s.T)
	counts := map[string]int{}
	for _, m := range all {
		counts[m.VolumeName]++
	}
	return counts
}

// movedOnce requires that each of the volumes v0 to vn-1 was moved by one migration.
func (s *site) movedOnce(n int) {
	s.T.Helper()
	counts := s.moves()
	for i := range n {
		name := fmt.Sprint("v", i)
		v, err := s.Store.Volumes.Get(s.T.Context(), name, store.Viewer{})
		if err != nil || v.Location.Pool != "slow" || counts[name] != 1 {
			s.T.Errorf("volume %s is in pool %s after %d migrations (%v)", name, v.Location.Pool, counts[name], err)
		}
	}
}
