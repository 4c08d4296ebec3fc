// SPDX-License-Identifier: Apache-2.0

// Package relaytest is a registry for the tests of what asks hosts for things: a store
// with its relay, hosts that fetch their tasks, and one loop, all in a bubble of its own
// time. It knows nothing of what a task means.
package relaytest

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/memtest"
	"github.com/volferry/volferry/registry/internal/relay"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/workflow"
)

// Main runs the tests of a package, with their databases in memory.
func Main(m *testing.M) {
	memtest.TempDir()
	goleak.VerifyTestMain(m)
}

// Site is a registry that can be restarted, and its hosts.
type Site struct {
	T     *testing.T
	Store *workflow.Store
	Relay *relay.Relay
	// Path is the file of the database.
	Path string
	// There is held for writing while the registry is not there.
	There sync.RWMutex

	hosts []*Host
	stop  func() // ends the loop
}

// Loop is what asks the hosts.
type Loop interface {
	Run(ctx context.Context) error
	Ready() <-chan struct{}
}

// New returns a site whose registry is open. It is for the inside of a bubble; path is
// in a directory from outside.
func New(t *testing.T, path string) *Site {
	t.Helper()
	s := &Site{T: t, Path: path, stop: func() {}}
	s.Open()
	return s
}

// Open opens the registry.
func (s *Site) Open() {
	s.T.Helper()
	db, err := workflow.Open(context.Background(), s.Path, store.Options{})
	if err != nil {
		s.T.Fatal(err)
	}
	s.Store, s.Relay = db, relay.New(relay.Config{Store: db, Log: slog.New(slog.DiscardHandler)})
}

// Close closes it. The loop has ended.
func (s *Site) Close() {
	s.Relay.Close()
	if err := s.Store.Close(); err != nil {
		s.T.Error(err)
	}
}

// Run has the loop work until Stop.
func (s *Site) Run(loop Loop) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	<-loop.Ready()
	s.stop = func() {
		cancel()
		if err := <-done; err != nil {
			s.T.Error(err)
		}
	}
}

// Stop ends the loop.
func (s *Site) Stop() {
	s.stop()
	s.stop = func() {}
}

// Replace closes the registry, has between happen, and opens it again with a loop that
// begin runs. Its hosts lose their polls and come again.
func (s *Site) Replace(between, begin func()) {
	s.T.Helper()
	s.Stop()
	polling := []*Host{}
	for _, h := range s.hosts {
		if h.Polling() {
			h.Away()
			polling = append(polling, h)
		}
	}
	s.There.Lock()
	s.Close()
	between()
	s.Open()
	s.There.Unlock()
	for _, h := range polling {
		h.Start()
	}
	begin()
}

// End ends loop, hosts and registry.
func (s *Site) End() {
	s.Stop()
	for _, h := range s.hosts {
		h.Away()
	}
	s.Close()
}

// Pass lets time pass in a bubble.
func Pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // fake time
	synctest.Wait()
}

// Place is a raw image of 1 MiB in a pool that is called like its directory.
func Place(pool, name string) api.Location {
	return api.Location{Pool: pool, Name: name, Path: "/" + pool + "/" + name, Format: api.FormatRaw, SizeBytes: 1 << 20}
}

// Document is an answer of a host's API.
func Document(nouns map[string]any) json.RawMessage {
	nouns["schema_version"] = api.SchemaVersion
	return encode(nouns)
}

// Refuse is a refusal of a host's API.
func Refuse(code api.Code) api.TaskAnswer {
	return api.TaskAnswer{Status: code.HTTPStatus(), Body: encode(api.ErrorBody{Error: api.Errorf(code, "refused as %s", code)})}
}

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
