// SPDX-License-Identifier: Apache-2.0

// Package relaytest has a registry for tests of packages that call hosts: a store with its relay,
// hosts that fetch their tasks, and one loop, all in a synctest bubble. It does not know the
// meaning of a task.
package relaytest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
	"github.com/volferry/volferry/internal/memtest"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/storetest"
)

// Main runs the tests of a package with databases in memory.
func Main(m *testing.M) {
	memtest.TempDir()
	goleak.VerifyTestMain(m)
}

// Site is a registry that can be restarted, its hosts, and the loop that calls them.
type Site struct {
	Registry

	hosts []*Host
	stop  func() // ends the loop
}

// A Loop calls hosts.
type Loop interface {
	Run(ctx context.Context) error
	Ready() <-chan struct{}
}

// New returns a site with an open registry. Call it inside a bubble; the directory of path must
// have been made outside.
func New(t *testing.T, path string) *Site {
	t.Helper()
	s := &Site{Registry: Registry{T: t, Path: path}, stop: func() {}}
	s.Open()
	return s
}

// Host adds host a or b, which reports pools and does not poll until Start.
func (s *Site) Host(name string, pools []api.Pool, perform Perform) *Host {
	s.T.Helper()
	id := map[string]string{"a": storetest.HostA, "b": storetest.HostB}[name]
	h := &Host{ID: id, Name: name, registry: &s.Registry, perform: perform}
	s.hosts = append(s.hosts, h)
	h.Report(pools...)
	return h
}

// ShareVolume makes a multiattach volume at a location, and attaches it for writing to running
// guests, given by host.
func (s *Site) ShareVolume(name string, at api.Location, guests map[string][]string) {
	s.T.Helper()
	expect.Value(s.Store.Types.Create(s.T.Context(), store.Call{}, api.VolumeTypeCreate{Name: "gold", Multiattach: true}))(s.T)
	volumeID := Kit.Available(s.T, s.Store, "a", name, "gold", at)
	for host, names := range guests {
		for _, guest := range names {
			Kit.Attach(s.T, s.Store, api.AttachmentReserve{
				ID: storetest.NamedID(storetest.AttachmentKind, guest), VolumeID: volumeID, InstanceID: Kit.Running(s.T, s.Store, host, guest), Device: "vdb",
				Mode: api.ModeRW, Host: host, Epoch: 1, Generation: 1, OpID: "o",
			})
		}
	}
}

// Run runs the loop until Stop.
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

// Replace closes the registry, calls between, and reopens the registry; begin must start a new
// loop. The hosts lose their polls and poll again.
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

// End ends the loop, the hosts and the registry.
func (s *Site) End() {
	s.Stop()
	for _, h := range s.hosts {
		h.Away()
	}
	s.Close()
}

// Pass lets fake time pass in a bubble.
func Pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // fake time
	synctest.Wait()
}
