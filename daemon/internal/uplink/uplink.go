// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
)

// Uplink is the daemon's connection to the registry. It is safe for concurrent use.
type Uplink struct {
	*Memory
	*losses
	*drifts

	cfg     Config
	state   *State
	ready   chan struct{}
	once    sync.Once
	changed chan struct{}
	random  func() float64
	session string

	// reporting serialises reports, so that the last answer is the newest.
	reporting ctxMutex
	files     fileLooker
	halted    atomic.Bool
	polling   atomic.Int32
	// pendingView is a view that no later report has confirmed. reporting guards it.
	pendingView *pendingView
	// halting gets the result of the present halt. It is nil without a halt. Only Run uses it.
	halting    chan error
	lastReport lastReport

	tasks claims

	mu         sync.Mutex
	host       api.Host // zero until the registry has answered once
	err        error    // why the last report failed
	tried      bool
	listeners  []Listener
	migrations func(ctx context.Context) ([]api.Migration, error)
	remarks    func(instanceID string) string
	// passing has the domains that were in a transient state at the last report.
	passing map[string]bool
}

const reportTimeout = 10 * time.Second

// New returns an uplink with an earlier process's stored data. It does nothing before Run or the
// first call.
func New(cfg Config) (*Uplink, error) {
	memory, err := newMemory(&cfg)
	if err != nil {
		return nil, err
	}
	u := &Uplink{
		Memory: memory,
		losses: &losses{memory: memory, state: cfg.State, hv: cfg.HV, registry: cfg.Registry, guards: cfg.Guards, log: cfg.Log},
		drifts: &drifts{memory: memory, hv: cfg.HV, guards: cfg.Guards, ops: cfg.Ops, log: cfg.Log},
		cfg:    cfg, state: cfg.State,
		ready: make(chan struct{}), reporting: make(ctxMutex, 1), changed: make(chan struct{}, 1), session: uuid.NewString(), random: rand.Float64, tasks: claims{ids: map[string]bool{}},
	}
	u.halted.Store(u.Fence() != nil)
	return u, nil
}

// String returns the uplink's name for messages of the daemon.
func (u *Uplink) String() string { return "registry uplink" }

// Ready returns a channel that is closed after the first attempt to report, even if that failed: a
// daemon works without its registry.
func (u *Uplink) Ready() <-chan struct{} { return u.ready }

// Changed makes the uplink report soon.
func (u *Uplink) Changed() {
	select {
	case u.changed <- struct{}{}:
	default: // a report is requested
	}
}

func (u *Uplink) note(err error) (news bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	news = errChanged(u.err, err)
	u.err, u.tried = err, true
	return news
}

func (u *Uplink) knownHost() (api.Host, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.host, u.host.ID != ""
}

// Token returns the fencing token of this host's changes: its id and its present epoch (0 if
// none).
func (u *Uplink) Token() (hostID string, epoch int64) {
	return u.cfg.HostID, u.state.Epoch()
}

// Err returns why the registry cannot be reached, or nil.
func (u *Uplink) Err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// Fence returns this host's fence, or nil.
func (u *Uplink) Fence() *Fence { return u.state.fence() }

// Up reports whether the registry answered the last report. Before the first answer it is false,
// and Err is nil.
func (u *Uplink) Up() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.upLocked()
}

func (u *Uplink) upLocked() bool { return u.err == nil && u.host.ID != "" }

type ctxMutex chan struct{}

func (m ctxMutex) lock(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m ctxMutex) unlock() { <-m }
