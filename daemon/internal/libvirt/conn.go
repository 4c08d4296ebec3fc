// SPDX-License-Identifier: Apache-2.0

// Package libvirt is hv.Hypervisor on a real libvirtd. It owns the connection
// (how it is made, lost, watched and made again), the translation between
// libvirt's XML and errors and the nouns of package hv, and nothing else: it
// decides nothing, remembers nothing of a domain, and must not know what a
// migration is. It is the only importer of go-libvirt and libvirtxml.
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
	// defaultCallTimeout is above the 30 s for which libvirt itself waits for a
	// domain that is busy with another job, so that its answer comes first.
	defaultCallTimeout = 45 * time.Second
	// defaultListedTimeout is of Conn.listedTimeout.
	defaultListedTimeout = 5 * time.Second
	// longCallTimeout bounds the calls that wait for storage: pivot and abort
	// (which drain and flush), a start, and pool calls. The heartbeat on another
	// session still notices a hung libvirtd within CallTimeout.
	longCallTimeout = 15 * time.Minute

	heartbeatInterval = 5 * time.Second
	minBackoff        = 100 * time.Millisecond
	maxBackoff        = 2 * time.Second

	// readyWithin is how long a first try to connect may keep the daemon from
	// being ready.
	readyWithin = 5 * time.Second
)

// defaultSockets are where libvirtd, or the modular daemon that replaces it,
// listens.
var defaultSockets = []string{"/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock"}

// Config is the configuration of a Conn.
type Config struct {
	// Socket is the path of libvirtd's read-write socket. Empty: the usual
	// places.
	Socket string
	// CallTimeout is how long libvirtd may take to answer before it counts as hung. 0 is 45
	// s.
	CallTimeout time.Duration
	// DefinitionsDir is the directory of libvirt's domain definitions, and StateDir the
	// directory of what belongs to domains (managed saves, NVRAM), as this process sees
	// them. If they are empty, they are libvirt's own paths.
	DefinitionsDir, StateDir string
	// Clusters are the Ceph clusters whose images have an address.
	Clusters rbd.Clusters
	// Processes is asked what the kernel says of processes. If it is nil, this process looks
	// itself.
	Processes Processes
	// Log may be nil.
	Log *slog.Logger
}

// Conn is a Hypervisor on libvirtd. Until Run has connected, and while
// libvirtd is away, every call returns hv.ErrUnavailable at once.
type Conn struct {
	sockets     []string
	callTimeout time.Duration
	// listedTimeout is how long one domain may keep the list of all of them. libvirt
	// keeps a domain locked while it works on storage that does not answer.
	listedTimeout time.Duration
	library       *library
	clusters      rbd.Clusters
	processes     Processes
	log           *slog.Logger
	feed          hv.Feed
	ready         chan struct{}
	tried         sync.Once
	pools         gate
	// dirtyReads lets one read of a bitmap at a time through for each domain.
	dirtyReads gate
	// qemuDefault is as which user QEMU runs, nil as long as libvirt has not said.
	qemuDefault atomic.Pointer[hv.ProcessUser]

	mu   sync.Mutex
	link *link // nil while down
}

// link is the sessions that make up a connection. libvirtd works on five requests
// of a client at a time, so that a few that wait for storage keep all others of
// their session waiting. A guest that is paused for a switch must not stay paused
// because of another one's storage, so what begins and ends a pause has a session
// that nothing else uses. What may last longer, and pools, have a connection for
// each call (byItself).
type link struct {
	reads   *session // return soon
	changes *session // of domains; within callTimeout
	// windows are the calls by which the pause of a guest begins and ends: Suspend,
	// SetConfigChain, Resume. They do not wait for storage.
	windows *session
	// jobEnds are Pivot and AbortJob, which drain and flush.
	jobEnds *session

	// poolReads may be lost and made anew: a pool may hang for as long as its server
	// is away, and that says nothing of libvirtd.
	poolReads lane
}

// core are the sessions without which there is no connection.
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

// New returns a Conn that is not connected yet. Run connects it.
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

// Events returns a new subscription, see hv.Hypervisor.
func (c *Conn) Events(ctx context.Context) <-chan hv.Event { return c.feed.Subscribe(ctx) }

// String names the task.
func (c *Conn) String() string { return "libvirt connection" }

// Ready is closed after the first try to connect, so that the daemon's first requests find
// a libvirtd that is there. The daemon works without libvirtd, so the try takes a few
// seconds at most.
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

// reads is the session for calls that change nothing and return soon.
func (c *Conn) reads() (*session, error) {
	l, err := c.current()
	if err != nil {
		return nil, err
	}
	return l.reads, nil
}

// changes is the session for calls that change something and answer within callTimeout.
func (c *Conn) changes() (*session, error) {
	l, err := c.current()
	if err != nil {
		return nil, err
	}
	return l.changes, nil
}

// windows is the session for what begins and ends the pause of a guest.
func (c *Conn) windows() (*session, error) {
	l, err := c.current()
	if err != nil {
		return nil, err
	}
	return l.windows, nil
}

// jobEnds is the session for the ends of block jobs.
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
