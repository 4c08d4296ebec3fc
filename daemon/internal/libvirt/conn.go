// SPDX-License-Identifier: Apache-2.0

// Package libvirt is hv.Hypervisor on a real libvirtd. It owns the connection, and translates
// between libvirt's XML and errors and the nouns of package hv. It decides nothing, remembers
// nothing of a domain, and must not know what a migration is.
package libvirt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
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
	// longCallTimeout bounds the calls that wait for storage: pivot and abort (which drain and
	// flush), a start, and pool calls. The heartbeat still notices a hung libvirtd within
	// CallTimeout.
	longCallTimeout = 15 * time.Minute

	heartbeatInterval = 5 * time.Second
	minBackoff        = 100 * time.Millisecond
	maxBackoff        = 2 * time.Second

	// readyWithin is how long a first try to connect may delay the daemon's readiness.
	readyWithin = 5 * time.Second
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

// Conn is a Hypervisor on libvirtd. Until Run has connected, and while libvirtd is down, every
// call returns hv.ErrUnavailable at once.
type Conn struct {
	sockets     []string
	callTimeout time.Duration
	// listedTimeout is how long one domain may delay the list of all domains. libvirt keeps a
	// domain locked while it works on storage that does not answer.
	listedTimeout time.Duration
	library       *library
	clusters      rbd.Clusters
	processes     Processes
	log           *slog.Logger
	feed          hv.Feed
	ready         chan struct{}
	tried         sync.Once
	pools         gate
	// dirtyReads permits one read of a bitmap at a time for each domain.
	dirtyReads gate
	// qemuDefault is QEMU's default user, nil until libvirt has reported it.
	qemuDefault atomic.Pointer[hv.ProcessUser]

	mu   sync.Mutex
	link *link // nil while down
}

// link is the sessions of a connection. libvirtd processes five requests of a client at a time, so
// a few calls that wait for storage block all others of their session. Longer calls, and pool
// calls, have a connection for each call (byItself).
type link struct {
	reads   *session // calls that return soon
	changes *session // changes of domains, within callTimeout
	// windows is for the calls that begin and end the pause of a guest: Suspend, SetConfigChain,
	// Resume. Another guest's storage must not prolong the pause.
	windows *session
	// jobEnds is for Pivot and AbortJob, which drain and flush.
	jobEnds *session

	// poolReads may be lost and made again: a pool may hang while its server is down, which does
	// not mean that libvirtd hangs.
	poolReads lane
}

func (l *link) core() []**session {
	return []**session{&l.reads, &l.changes, &l.windows, &l.jobEnds}
}

func (l *link) close() {
	for _, s := range l.core() {
		if *s != nil {
			(*s).close()
		}
	}
	l.poolReads.close()
}

// New returns a Conn that Run connects.
func New(cfg Config) *Conn {
	c := &Conn{
		sockets: defaultSockets, callTimeout: cfg.CallTimeout, listedTimeout: defaultListedTimeout,
		library: newLibrary(cfg.DefinitionsDir, cfg.StateDir), clusters: cfg.Clusters, processes: cfg.Processes, log: cfg.Log, ready: make(chan struct{}),
	}
	if cfg.Socket != "" {
		c.sockets = []string{cfg.Socket}
	}
	if c.processes == nil {
		c.processes = procDir
	}
	if c.callTimeout == 0 {
		c.callTimeout = defaultCallTimeout
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Up reports whether the connection works now.
func (c *Conn) Up() bool { return c.feed.Up() }

// Events returns a new subscription; see hv.Hypervisor.
func (c *Conn) Events(ctx context.Context) <-chan hv.Event { return c.feed.Subscribe(ctx) }

// String names the task.
func (c *Conn) String() string { return "libvirt connection" }

// Ready is closed after the first try to connect, so that the daemon's first requests find a
// connected libvirtd, but after readyWithin at the latest.
func (c *Conn) Ready() <-chan struct{} { return c.ready }

func (c *Conn) setReady() { c.tried.Do(func() { close(c.ready) }) }

func (c *Conn) dial(ctx context.Context) (*session, error) {
	var errs []error
	for _, path := range c.sockets {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unix", path)
		if err == nil {
			return openSession(ctx, conn, c.callTimeout)
		}
		if !errors.Is(err, os.ErrNotExist) || len(c.sockets) == 1 {
			return nil, fmt.Errorf("connect to libvirt: %w", err)
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("connect to libvirt: %w", errors.Join(errs...))
}

func (c *Conn) setLink(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link = l
}

func (c *Conn) reads() (*session, error) {
	l, err := c.current()
	if err != nil {
		return nil, err
	}
	return l.reads, nil
}

func (c *Conn) changes() (*session, error) {
	l, err := c.current()
	if err != nil {
		return nil, err
	}
	return l.changes, nil
}

func (c *Conn) windows() (*session, error) {
	l, err := c.current()
	if err != nil {
		return nil, err
	}
	return l.windows, nil
}

func (c *Conn) jobEnds() (*session, error) {
	l, err := c.current()
	if err != nil {
		return nil, err
	}
	return l.jobEnds, nil
}

func (c *Conn) current() (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == nil {
		return nil, errNotConnected
	}
	return c.link, nil
}
