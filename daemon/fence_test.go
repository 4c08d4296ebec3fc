// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/journal"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
	"github.com/volferry/volferry/daemon/internal/network"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/daemon/internal/sandbox"
	"github.com/volferry/volferry/daemon/internal/uplink"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/client"
	"github.com/volferry/volferry/internal/httpjson"
)

const (
	fencedHost   = "10000000-0000-4000-8000-000000000001"
	fencedVolume = "10000000-0000-4000-8000-000000000002"
	fencedBytes  = 8 << 20
)

// registry is a registry with one host, one volume and its migration, at a socket.
type registry struct {
	mu     sync.Mutex
	vol    api.Volume
	row    api.Migration
	before api.MigrationState // of the row, while it is orphaned
	epoch  int64
	fenced bool
	// mayRejoin is closed when the host may come back.
	mayRejoin chan struct{}
	// mute leaves reports without an answer.
	mute bool
	// epochs are the epochs of the accepted changes.
	epochs []int64
}

func (r *registry) locked(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// fence fences the host, like an operator.
func (r *registry) fence() {
	r.locked(func() {
		r.epoch++
		r.fenced = true
		r.before, r.row.State = r.row.State, api.MigrationOrphaned
	})
}

// abandon abandons its migration, like an operator.
func (r *registry) abandon() {
	r.locked(func() { r.row.State, r.vol.MigrationID = api.MigrationCancelled, "" })
}

func (r *registry) stale() error {
	return api.Errorf(api.CodeStaleEpoch, "the host is in epoch %d", r.epoch).With("epoch", r.epoch)
}

func (r *registry) host() api.Host {
	return api.Host{ID: fencedHost, Name: "alpha", Status: api.HostUp, Epoch: r.epoch, Mark: &api.RegistryMark{RegistryID: "r", Timeline: 1, Seq: 1, Hash: "h"}}
}

func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if strings.HasSuffix(req.URL.Path, "/rejoin") {
		select {
		case <-r.mayRejoin:
		case <-req.Context().Done():
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	noun, v, err := r.answer(req)
	if err != nil {
		httpjson.WriteError(w, err)
		return
	}
	_ = httpjson.Write(w, http.StatusOK, noun, v)
}

func (r *registry) answer(req *http.Request) (noun string, v any, err error) {
	path := strings.TrimPrefix(req.URL.Path, "/v1/")
	switch {
	case strings.HasSuffix(path, "/report"):
		return "host", r.host(), r.report(req)
	case strings.HasSuffix(path, "/rejoin"):
		if r.fenced = false; r.row.State == api.MigrationOrphaned {
			r.row.State = r.before
		}
		return "host", r.host(), nil
	case path == "migrations:register":
		var in api.MigrationRegister
		err := r.change(req, &in, func() int64 { return in.Epoch })
		r.vol.MigrationID = in.ID
		r.row = api.Migration{ID: in.ID, VolumeID: fencedVolume, Dst: in.Dst, State: api.MigrationStarting}
		return "migration", r.row, err
	case strings.HasSuffix(path, "/transition"):
		var in api.MigrationTransition
		if err := r.change(req, &in, func() int64 { return in.Epoch }); err != nil {
			return "", nil, err
		}
		if r.row.State.Final() && r.row.State != in.To {
			return "", nil, api.Errorf(api.CodeNoMigration, "the migration is over: %s", r.row.State)
		}
		r.row.State = in.To
		return "migration", r.row, nil
	case strings.HasPrefix(path, "migrations/"):
		return "migration", r.row, nil
	case strings.HasPrefix(path, "volumes/"):
		return "volume", r.vol, nil
	}
	return path, []any{}, nil
}

func (r *registry) report(req *http.Request) error {
	var in api.HostReport
	if err := json.NewDecoder(req.Body).Decode(&in); err != nil {
		return err
	}
	switch {
	case r.mute:
		return api.Errorf(api.CodeRegistryUnavailable, "the registry does not answer")
	case r.fenced || (in.Epoch != 0 && in.Epoch != r.epoch):
		return r.stale()
	}
	return nil
}

func (r *registry) change(req *http.Request, in any, epoch func() int64) error {
	if err := json.NewDecoder(req.Body).Decode(in); err != nil {
		return err
	}
	if r.fenced || epoch() != r.epoch {
		return r.stale()
	}
	r.epochs = append(r.epochs, r.epoch)
	return nil
}

// fencedSite is a host with its state on disk, and its registry.
type fencedSite struct {
	t        *testing.T
	dir      string
	socket   string
	registry *registry
	src, dst string
	*process
}

// process has the parts of a daemon process that a fence concerns.
type process struct {
	up         *uplink.Uplink
	migrations *migrate.Manager
	runner     *op.Runner
	stop       func()
}

func newFencedSite(t *testing.T) *fencedSite {
	t.Helper()
	s := &fencedSite{t: t, dir: t.TempDir(), registry: &registry{epoch: 1, mayRejoin: make(chan struct{})}}
	s.socket, s.src, s.dst = filepath.Join(s.dir, "s"), filepath.Join(s.dir, "src.raw"), filepath.Join(s.dir, "dst.raw")
	if err := os.WriteFile(s.src, []byte(strings.Repeat("volferry", fencedBytes/8)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.registry.vol = api.Volume{
		ID: fencedVolume, Name: "vol", Status: api.VolumeAvailable, SizeBytes: fencedBytes, Generation: 1, Host: fencedHost,
		Location: api.Location{Path: s.src, Format: api.FormatRaw, SizeBytes: fencedBytes},
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s.registry, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	s.boot()
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *fencedSite) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// boot starts a process of the daemon, in serve's order.
func (s *fencedSite) boot() {
	s.t.Helper()
	p := &process{}
	log := slog.New(slog.DiscardHandler)
	records, err := journal.Open(s.t.Context(), filepath.Join(s.dir, "journal.db"))
	s.must(err)
	registry, err := client.NewRegistry(s.socket)
	s.must(err)
	guards := guard.New(filepath.Join(s.dir, "guards"), "")
	fake := hvtest.New()
	p.runner, err = op.New(op.Config{Journal: records, Describe: request.Describe, WaitPoll: 50 * time.Millisecond})
	s.must(err)
	state, err := uplink.OpenState(s.dir)
	s.must(err)
	p.up, err = uplink.New(uplink.Config{
		HostID: fencedHost, HostName: "alpha", State: state, HV: fake, Registry: registry, Guards: guards, Ops: hostOps{p.runner}, Log: log,
	})
	s.must(err)
	copier := transfer.NewCopier(s.dir, sandbox.Privileged{}.ThinBlockBytes, network.Access{}, log)
	p.migrations = migrate.New(move.Config{OverlayDir: filepath.Join(s.dir, "overlays"), Rules: location.Rules{AllowedPaths: []string{os.TempDir()}}}, move.Ports{
		HV: fake, Images: image.Storage{}, Copier: copier, Updates: copier, Units: copier, Registry: p.up.Site(registry), Guards: guards, Blobs: records,
		Claims: &location.Claims{Site: p.up.Site(registry), Pools: fake.Pools, HostID: fencedHost},
	}, p.runner, records, migrationHost(p.up), log)
	connectMigrations(p.up, p.migrations)
	if p.up.Fence() != nil {
		p.runner.Halt()
	} else {
		s.must(p.runner.Resume(s.t.Context()))
	}
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	tasks.Go(func() { _ = p.up.Run(ctx) })
	tasks.Go(func() { _ = p.migrations.Run(ctx, func() {}) })
	p.stop = func() {
		cancel()
		tasks.Wait()
		p.runner.Stop()
		registry.Close()
		s.must(records.Close())
	}
	s.process = p
}

func (s *fencedSite) restart() {
	s.t.Helper()
	s.stop()
	s.boot()
}

// eventually waits for a condition that the parts reach by themselves.
func (s *fencedSite) eventually(what string, is func() bool) {
	s.t.Helper()
	over := time.After(time.Minute)
	for look := time.NewTicker(10 * time.Millisecond); !is(); {
		select {
		case <-look.C:
		case <-over:
			s.t.Fatalf("still not: %s", what)
		}
	}
}

func (s *fencedSite) migration(id string) api.Migration {
	s.t.Helper()
	m, err := s.migrations.Get(s.t.Context(), id)
	s.must(err)
	return m
}

// copying begins a `volume migrate` with a slow copy.
func (s *fencedSite) copying() string {
	s.t.Helper()
	m, err := s.migrations.Start(s.t.Context(), migrate.StartRequest{
		OpID: uuid.NewString(), VolumeID: fencedVolume, Composite: true,
		Target: api.MigrationTarget{ToPath: s.dst, CopyOptions: api.CopyOptions{BandwidthBytesPerSecond: 1 << 20}},
	})
	s.must(err)
	s.eventually("something is copied", func() bool { return s.migration(m.ID).BytesDone > 0 })
	return m.ID
}

// copied returns the number of written bytes of dst.
func (s *fencedSite) copied() int64 {
	s.t.Helper()
	info, err := image.Storage{}.Inspect(s.t.Context(), api.Location{Path: s.dst, Format: api.FormatRaw})
	s.must(err)
	return info.AllocatedBytes
}

// fence fences the host, and returns when its copy has stopped.
func (s *fencedSite) fence() {
	s.t.Helper()
	s.registry.fence()
	s.standsStill()
}

func (s *fencedSite) standsStill() {
	s.t.Helper()
	s.eventually("the host stands still", func() bool { return s.up.Fence() != nil && len(s.runner.Active()) == 0 })
}

func TestAFencedHostGoesOnWithItsMigrationInTheNewEpoch(t *testing.T) {
	for name, meanwhile := range map[string]func(*fencedSite){
		"":                                   func(*fencedSite) {},
		", restarted before it has rejoined": (*fencedSite).restart,
	} {
		t.Run("the daemon"+name, func(t *testing.T) {
			t.Parallel()
			s := newFencedSite(t)
			id := s.copying()
			s.fence()
			meanwhile(s)
			s.standsStill()
			if m := s.migration(id); m.State != api.MigrationCopying {
				t.Errorf("the migration is %s, want it parked in its copy", m.State)
			}
			var before int
			s.registry.locked(func() { before = len(s.registry.epochs) })
			close(s.registry.mayRejoin)
			_, err := s.migrations.Update(t.Context(), id, api.MigrationUpdate{BandwidthBytesPerSecond: new(int64)})
			s.must(err)
			s.eventually("the migration ends", func() bool { return s.migration(id).State.Final() })
			if m := s.migration(id); m.State != api.MigrationCompleted {
				t.Errorf("the migration is %s: %v", m.State, m.Error)
			}
			s.registry.locked(func() {
				if told := s.registry.epochs[before:]; len(told) == 0 || slices.Min(told) != 2 || s.registry.row.State != api.MigrationCompleted {
					t.Errorf("the registry has the migration as %s, and was told in the epochs %v", s.registry.row.State, told)
				}
			})
		})
	}
}

func TestAMigrationThatWasAbandonedWhileTheHostWasFencedEnds(t *testing.T) {
	for name, meanwhile := range map[string]func(*fencedSite){
		"":                                   func(*fencedSite) {},
		", restarted before it has rejoined": (*fencedSite).restart,
		// It died after the rejoin and before its ops.
		", restarted in the new epoch": func(s *fencedSite) {
			s.stop()
			s.must(os.WriteFile(filepath.Join(s.dir, "uplink.json"), []byte(`{"epoch":2}`), 0o600))
			s.registry.locked(func() { s.registry.fenced = false })
			s.boot()
		},
	} {
		t.Run("the daemon"+name, func(t *testing.T) {
			t.Parallel()
			s := newFencedSite(t)
			id := s.copying()
			s.fence()
			s.registry.abandon()
			var told int
			s.registry.locked(func() { told = len(s.registry.epochs) })
			written := s.copied()
			// The registry is asked before any op continues, not only by a report.
			s.registry.locked(func() { s.registry.mute = true })
			meanwhile(s)
			close(s.registry.mayRejoin)
			s.eventually("the migration ends", func() bool { return s.migration(id).State == api.MigrationError })
			if m := s.migration(id); m.Error == nil || m.Error.Code != api.CodeNoMigration {
				t.Errorf("the migration says %v", m.Error)
			}
			if now := s.copied(); now != written {
				t.Errorf("%d bytes were written to a dst that may be another's", now-written)
			}
			s.registry.locked(func() {
				if len(s.registry.epochs) != told {
					t.Errorf("the registry was told something of it")
				}
			})
		})
	}
}
