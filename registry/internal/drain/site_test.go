// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/drain"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a registry with its drains, and hosts that do what they are asked, all
// in one bubble of its own time.
type site struct {
	t *testing.T
	// there is held for writing while the registry is not there.
	there sync.RWMutex
	store *store.Store
	relay *relay.Relay
	where relay.Where
	hosts map[string]*daemon
	stop  func() // of the loop
	path  string
}

// bubble runs f with a site that has the hosts a and b, both there, each with
// the pools fast and slow.
func bubble(t *testing.T, f func(s *site)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "registry.db")
	synctest.Test(t, func(t *testing.T) {
		s := &site{t: t, hosts: map[string]*daemon{}, path: path}
		s.open()
		for i, name := range []string{"a", "b"} {
			d := newDaemon(s, fmt.Sprintf("10000000-0000-4000-8000-%012d", i+1), name)
			s.hosts[name] = d
			d.report()
			d.start()
		}
		synctest.Wait()
		s.begin()
		f(s)
		s.stop()
		for _, d := range s.hosts {
			d.away()
		}
		s.close()
	})
}

// open opens the registry; begin has its loop run.
func (s *site) open() {
	s.t.Helper()
	db, err := store.Open(context.Background(), s.path, store.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.store = db
	s.relay = relay.New(relay.Config{Store: db, Log: slog.New(slog.DiscardHandler)})
	s.where = relay.Where{Places: db, Present: s.relay.Present}
}

func (s *site) begin() {
	loop := drain.New(drain.Config{Store: s.store, Relay: s.relay, Where: s.where, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	<-loop.Ready()
	s.stop = func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	}
}

func (s *site) close() {
	s.relay.Close()
	if err := s.store.Close(); err != nil {
		s.t.Error(err)
	}
}

// restart is the registry's: its hosts lose their polls and come again.
func (s *site) restart() {
	s.t.Helper()
	s.stop()
	polling := []*daemon{}
	for _, d := range s.hosts {
		if d.polling() {
			d.away()
			polling = append(polling, d)
		}
	}
	s.there.Lock()
	s.close()
	s.open()
	s.there.Unlock()
	for _, d := range polling {
		d.start()
	}
	s.begin()
}

// pass lets time pass.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // fake time
	synctest.Wait()
}

// volume makes an unattached volume on a host, in pool fast.
func (s *site) volume(host, name string) {
	s.t.Helper()
	id := fmt.Sprintf("30000000-0000-4000-8000-%012x", name)
	_, err := s.store.RegisterVolume(s.t.Context(), store.Call{}, api.VolumeRegister{
		ID: id, Name: name, Status: api.VolumeAvailable, Host: host, Location: place("fast", name),
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func place(pool, name string) api.Location {
	return api.Location{Pool: pool, Name: name, Path: "/" + pool + "/" + name, Format: api.FormatRaw, SizeBytes: 1 << 20}
}

// volumes makes n of them, called v0 and so on, on the hosts in turn.
func (s *site) volumes(n int, hosts ...string) {
	s.t.Helper()
	for i := range n {
		s.volume(hosts[i%len(hosts)], fmt.Sprint("v", i))
	}
}

func (s *site) drain(parallel int) string {
	s.t.Helper()
	d, err := s.store.CreateDrain(s.t.Context(), store.Call{}, "fast", api.PoolDrain{ToPool: "slow", Parallel: parallel, BandwidthBytesPerSecond: 1000, DeleteSource: true})
	if err != nil {
		s.t.Fatal(err)
	}
	return d.ID
}

func (s *site) set(id, to string) {
	s.t.Helper()
	if _, err := s.store.SetDrainState(s.t.Context(), store.Call{}, id, to); err != nil {
		s.t.Fatal(err)
	}
}

// states is a drain as "running: v0 moved, v1 skipped multiattached".
func (s *site) states(id string) string {
	s.t.Helper()
	d, err := s.store.Drain(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
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
	s.t.Helper()
	if got := s.states(id); got != want {
		s.t.Errorf("the drain is\n%s, want\n%s", got, want)
	}
}

// until waits until the drain is over, for at most an hour of the bubble.
func (s *site) until(id string) {
	s.t.Helper()
	for range 3600 {
		if d, err := s.store.Drain(s.t.Context(), id); err != nil || d.State == api.DrainDone {
			return
		}
		pass(time.Second)
	}
	s.t.Errorf("the drain is not done within an hour: %s", s.states(id))
}

// moves counts the migrations of each volume that were ever registered.
func (s *site) moves() map[string]int {
	s.t.Helper()
	all, err := s.store.Migrations(s.t.Context(), "", true, store.Viewer{})
	if err != nil {
		s.t.Fatal(err)
	}
	counts := map[string]int{}
	for _, m := range all {
		counts[m.VolumeName]++
	}
	return counts
}

// movedOnce says that each of the volumes v0 to vn-1 was moved, by one
// migration.
func (s *site) movedOnce(n int) {
	s.t.Helper()
	counts := s.moves()
	for i := range n {
		name := fmt.Sprint("v", i)
		v, err := s.store.Volume(s.t.Context(), name, store.Viewer{})
		if err != nil || v.Location.Pool != "slow" || counts[name] != 1 {
			s.t.Errorf("volume %s is in pool %s after %d migrations (%v)", name, v.Location.Pool, counts[name], err)
		}
	}
}

// document is an answer of a host's API.
func document(nouns map[string]any) json.RawMessage {
	nouns["schema_version"] = api.SchemaVersion
	b, err := json.Marshal(nouns)
	if err != nil {
		panic(err)
	}
	return b
}

func refuse(code api.Code) api.TaskAnswer {
	b, err := json.Marshal(api.ErrorBody{Error: api.Errorf(code, "refused as %s", code)})
	if err != nil {
		panic(err)
	}
	return api.TaskAnswer{Status: code.HTTPStatus(), Body: b}
}
