// SPDX-License-Identifier: Apache-2.0

package pauseall_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/pauseall"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const size = 1 << 20

// guests are the instances of the site, by host: three have the volume.
var guests = map[string][]string{"a": {"g1", "g2"}, "b": {"g3"}}

// site is a registry with the loop, and hosts that do what they are asked, all in one
// bubble of its own time.
type site struct {
	t     *testing.T
	store *store.Store
	relay *relay.Relay
	hosts map[string]*daemon
	loop  func() // ends it
	path  string
	// mortal ends the loop at a moment of the test's choice; nil never.
	mortal *mortal

	// mu guards the world that the hosts share.
	mu sync.Mutex
	// images are the files of the volume that there are.
	images map[string]bool
	broken []string
}

// bubble runs f with a site that has the hosts a and b, both there, which share the
// pools old and new, and volume v in old with all guests.
func bubble(t *testing.T, f func(s *site)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "registry.db")
	synctest.Test(t, func(t *testing.T) {
		s := &site{t: t, hosts: map[string]*daemon{}, path: path, images: map[string]bool{"/old/v": true}}
		s.open()
		s.loop = func() {}
		defer s.end()
		for i, name := range []string{"a", "b"} {
			d := newDaemon(s, fmt.Sprintf("10000000-0000-4000-8000-%012d", i+1), name)
			s.hosts[name] = d
			d.report()
			d.start()
		}
		s.found()
		synctest.Wait()
		s.begin()
		f(s)
	})
}

func (s *site) end() {
	s.loop()
	for _, d := range s.hosts {
		d.away()
	}
	s.close()
	for _, what := range s.broken {
		s.t.Error(what)
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func guestID(name string) string { return fmt.Sprintf("20000000-0000-4000-8000-%012x", name) }

const volumeID = "30000000-0000-4000-8000-000000000001"

// found makes the volume and its attachments.
func (s *site) found() {
	s.t.Helper()
	ctx := s.t.Context()
	must(s.store.CreateType(ctx, store.Call{}, api.VolumeTypeCreate{Name: "gold", Multiattach: true}))(s.t)
	must(s.store.RegisterVolume(ctx, store.Call{}, api.VolumeRegister{
		ID: volumeID, Name: "v", Status: api.VolumeAvailable, Type: "gold", Host: "a", Location: place("old", "v"),
	}))(s.t)
	for host, names := range guests {
		for _, name := range names {
			must(s.store.RegisterInstance(ctx, store.Call{}, api.InstanceRegister{ID: guestID(name), Name: name, Host: host, State: api.InstanceRunning}))(s.t)
			a := must(s.store.ReserveAttachment(ctx, store.Call{}, api.AttachmentReserve{
				ID: fmt.Sprintf("40000000-0000-4000-8000-%012x", name), VolumeID: volumeID, InstanceID: guestID(name), Device: "vdb",
				Mode: api.ModeRW, Host: host, Epoch: 1, Generation: 1, OpID: "o",
			}))(s.t)
			from := api.AttachmentReserved
			for _, to := range []api.AttachmentState{api.AttachmentAttaching, api.AttachmentAttached} {
				must(s.store.TransitionAttachment(ctx, store.Call{}, a.ID, api.AttachmentTransition{
					From: []api.AttachmentState{from}, To: to, Host: host, Epoch: 1, OpID: string(to),
				}))(s.t)
				from = to
			}
			s.hosts[host].guests[guestID(name)] = &guest{at: "/old/v"}
		}
	}
}

func place(pool, name string) api.Location {
	return api.Location{Pool: pool, Name: name, Path: "/" + pool + "/" + name, Format: api.FormatRaw, SizeBytes: size}
}

func (s *site) open() {
	s.t.Helper()
	s.store = must(store.Open(context.Background(), s.path, store.Options{}))(s.t)
	s.relay = relay.New(relay.Config{Store: s.store, Log: slog.New(slog.DiscardHandler)})
}

// begin has the loop run.
func (s *site) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	cfg := pauseall.Config{Store: s.store, Relay: s.relay, Log: slog.New(slog.DiscardHandler)}
	if s.mortal != nil {
		s.mortal.kill = cancel
		cfg.Store, cfg.Relay = mortalStore{s.store, s.mortal}, mortalRelay{s.relay, s.mortal}
	}
	loop := pauseall.New(cfg)
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	<-loop.Ready()
	s.loop = func() {
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
	s.loop()
	polling := []*daemon{}
	for _, d := range s.hosts {
		if d.polls != nil {
			d.away()
			polling = append(polling, d)
		}
	}
	s.close()
	s.open()
	for _, d := range polling {
		d.start()
	}
	s.mortal = nil
	s.begin()
}

// pass lets time pass.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // fake time
	synctest.Wait()
}

// move begins to move v to pool new, and returns the migration's id.
func (s *site) move() string {
	s.t.Helper()
	in := api.MigrationTarget{ToPool: "new", PauseAll: true, DeleteSource: true}
	return must(s.store.RegisterPause(s.t.Context(), store.Call{}, "v", in, []string{s.hosts["a"].id, s.hosts["b"].id}))(s.t).ID
}

func (s *site) cancel(id string) error {
	_, err := s.store.CancelPause(s.t.Context(), store.Call{}, id, nil)
	return err
}

func (s *site) fence(name string) {
	s.t.Helper()
	s.hosts[name].away()
	must(s.store.FenceHost(s.t.Context(), store.Call{}, name, api.HostFence{Evidence: "its power is off", EvenIfUp: true}))(s.t)
}

func (s *site) state(id string) string {
	s.t.Helper()
	m := must(s.store.Migration(s.t.Context(), id, store.Viewer{}))(s.t)
	if m.Error != nil {
		return string(m.State) + " " + string(m.Error.Code)
	}
	return string(m.State)
}

// until waits until the migration is over, for at most an hour of the bubble.
func (s *site) until(id string) api.Migration {
	s.t.Helper()
	for range 3600 {
		if m := must(s.store.Migration(s.t.Context(), id, store.Viewer{}))(s.t); m.State.Final() {
			pass(2 * time.Second)
			return must(s.store.Migration(s.t.Context(), id, store.Viewer{}))(s.t)
		}
		pass(time.Second)
	}
	s.t.Fatalf("the migration is not over within an hour: %s", s.state(id))
	return api.Migration{}
}

// wantWhole says what must hold at the end of every move: no lock, every guest as it
// was with the volume where it is, and no image but that one.
func (s *site) wantWhole(id string) {
	s.t.Helper()
	ctx := s.t.Context()
	m := must(s.store.Migration(ctx, id, store.Viewer{}))(s.t)
	v := must(s.store.Volume(ctx, "v", store.Viewer{}))(s.t)
	want := "/old/v"
	if m.State == api.MigrationCompleted {
		want = "/new/" + m.Dst.Name
	}
	if v.Location.Path != want || v.MigrationID != "" || len(v.Attachments) != 3 {
		s.t.Errorf("after %s volume = %+v", m.State, v)
	}
	for _, i := range must(s.store.Instances(ctx, store.Viewer{}))(s.t) {
		if i.Locked {
			s.t.Errorf("after %s instance %s is locked: %s", m.State, i.Name, i.LockReason)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.hosts {
		for name, g := range d.guests {
			if g.saved || g.at != want {
				s.t.Errorf("after %s guest %s is %+v, want it running on %s", m.State, name, *g, want)
			}
		}
	}
	if len(s.images) != 1 || !s.images[want] {
		s.t.Errorf("after %s images = %v, want %s", m.State, s.images, want)
	}
}

// wrong notes, for callers that hold mu, what must never be.
func (s *site) wrong(format string, args ...any) {
	s.broken = append(s.broken, fmt.Sprintf(format, args...))
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
