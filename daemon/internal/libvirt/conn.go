// SPDX-License-Identifier: Apache-2.0

// Package libvirt is hv.Hypervisor on a real libvirtd. It owns the connection, and translates
// between libvirt's XML and errors and the nouns of package hv. It decides nothing, remembers
// nothing of a domain, and must not know what a migration is. parts.go lists its types.
package libvirt

import (
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/rbd"
)

var _ hv.Hypervisor = (*Conn)(nil)

const (
	// defaultCallTimeout is above libvirt's own wait of 30 s for a domain that is busy with
	// another job, so that libvirt answers first.
	defaultCallTimeout   = 45 * time.Second
	defaultListedTimeout = 5 * time.Second
)

var defaultSockets = []string{"/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock"}

// Config is the configuration of a Conn.
type Config struct {
	// Socket is the path of libvirtd's read-write socket, empty for the usual paths.
	Socket string
	// CallTimeout is how long libvirtd may take to answer before it counts as hung. 0 means 45 s.
	CallTimeout time.Duration
	// DefinitionsDir has libvirt's domain definitions, and StateDir the domains' state (managed
	// saves, NVRAM), as this process sees them. Empty means libvirt's own paths.
	DefinitionsDir, StateDir string
	// Clusters are the Ceph clusters with images at addresses.
	Clusters rbd.Clusters
	// Processes reads what the kernel knows of processes; nil means that this process reads /proc
	// itself.
	Processes Processes
	// Log may be nil.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Processes == nil {
		c.Processes = procDir
	}
	if c.CallTimeout == 0 {
		c.CallTimeout = defaultCallTimeout
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Conn is a Hypervisor on libvirtd. Until Run has connected, and while libvirtd is down, every
// call returns hv.ErrUnavailable at once.
type Conn struct {
	*connection
	*library
	*domains
	*definitions
	*plug
	*chains
	*blockJobs
	*leases
	*writeLimits
	*tracker
	*power
	*memory
	*guestProcesses
	*pools
	devices
	*host

	log   *slog.Logger
	ready chan struct{}
	tried sync.Once
}

// New returns a Conn that Run connects.
func New(cfg Config) *Conn {
	cfg = cfg.withDefaults()
	connection := &connection{sockets: defaultSockets, callTimeout: cfg.CallTimeout}
	if cfg.Socket != "" {
		connection.sockets = []string{cfg.Socket}
	}
	library := newLibrary(cfg.DefinitionsDir, cfg.StateDir)
	domains := &domains{connection: connection, clusters: cfg.Clusters, listedTimeout: defaultListedTimeout}
	calls := &calls{connection: connection, library: library, domains: domains}
	processes := &guestProcesses{
		connection: connection, library: library, domains: domains, calls: calls, clusters: cfg.Clusters, kernel: cfg.Processes,
	}
	leases := &leases{
		library: library, domains: domains, processes: processes, clusters: cfg.Clusters, log: cfg.Log,
		socket: filepath.Join(filepath.Dir(connection.sockets[0]), "virtlockd-sock"),
	}
	return &Conn{
		connection: connection, library: library, domains: domains, guestProcesses: processes, leases: leases,
		definitions: &definitions{connection: connection, library: library, domains: domains, calls: calls, clusters: cfg.Clusters},
		plug:        &plug{connection: connection, library: library, domains: domains, calls: calls, leases: leases, clusters: cfg.Clusters},
		chains:      &chains{connection: connection, library: library, domains: domains, calls: calls, leases: leases, processes: processes, clusters: cfg.Clusters},
		blockJobs:   &blockJobs{connection: connection, calls: calls, leases: leases, clusters: cfg.Clusters},
		writeLimits: &writeLimits{connection: connection, calls: calls},
		tracker:     &tracker{library: library, domains: domains, calls: calls},
		power:       &power{domains: domains, calls: calls, leases: leases},
		memory:      &memory{connection: connection, domains: domains, calls: calls, processes: processes, clusters: cfg.Clusters},
		pools:       &pools{connection: connection, library: library},
		host:        &host{connection: connection, library: library, processes: processes},
		log:         cfg.Log,
		ready:       make(chan struct{}),
	}
}

// String names the task.
func (c *Conn) String() string { return "libvirt connection" }

// Ready is closed after the first try to connect, so that the daemon's first requests find a
// connected libvirtd, but after readyWithin at the latest.
func (c *Conn) Ready() <-chan struct{} { return c.ready }

func (c *Conn) setReady() { c.tried.Do(func() { close(c.ready) }) }
