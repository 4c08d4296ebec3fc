// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/internal/api"
)

// Registry is the part of the registry that the uplink needs (client.Registry).
type Registry interface {
	Report(ctx context.Context, report api.HostReport) (api.Host, error)
	RejoinHost(ctx context.Context, host string, in api.HostRejoin) (api.Host, error)
	Tasks(ctx context.Context, host, session string, wait time.Duration) ([]api.Task, error)
	AnswerTask(ctx context.Context, host, task string, in api.TaskAnswer) error

	Hosts(ctx context.Context) ([]api.Host, error)
	Pools(ctx context.Context) ([]api.Pool, error)
	Types(ctx context.Context) ([]api.VolumeType, error)
	Policies(ctx context.Context) ([]api.Policy, error)
	Volumes(ctx context.Context) ([]api.Volume, error)
	Instances(ctx context.Context) ([]api.Instance, error)
	Attachments(ctx context.Context, volume, instance string) ([]api.Attachment, error)
}

// Guards keeps domains from being started (package guard).
type Guards interface {
	Set(domainID, owner, reason string) error
	Clear(domainID, owner string) error
	Has(domainID, owner string) (bool, error)
	Of(domainID string) ([]guard.Guard, error)
	// List returns the reasons of all guards, by domain.
	List() (map[string]string, error)
}

// Ops is the uplink's view of the operations of this host.
type Ops interface {
	// TryLock calls f while no op has one of the keys, and reports whether it did. It does not
	// wait, because an op may itself wait for the report.
	TryLock(keys []string, f func()) bool
	// Halt returns when no op is at work any more; no op begins before Resume. It may be called
	// again.
	Halt(ctx context.Context) error
	// Resume continues the ops. Each op first checks whether its object still belongs to this host.
	Resume(ctx context.Context) error
}

// Listener is notified of the registry's data about this host.
type Listener interface {
	// Epoch is called with every epoch that the registry reports for this host, before the uplink
	// acts on it.
	Epoch(epoch int64)
	// RegistryUp is called when the registry can be reached again.
	RegistryUp()
	// BeforeHalt is called after a fence of this host. The ops are halted when it returns.
	BeforeHalt(ctx context.Context)
	// Resumed is called when this host has come back from a fence and its ops continue. After an
	// error the ops are resumed again, and it is called again.
	Resumed(ctx context.Context) error
}

// Config has this host's identity, and the systems that the uplink uses.
type Config struct {
	HostID   string
	HostName string
	BootID   string
	Version  string
	// State is this host's stored state. The view is stored in the same directory.
	State *State
	// SharedPools are pools that other hosts see too.
	SharedPools []string

	HV       Hypervisor
	Registry Registry
	Guards   Guards
	Ops      Ops
	Log      *slog.Logger
}

// Uplink is the daemon's connection to the registry. It is safe for concurrent use.
type Uplink struct {
	cfg   Config
	state *State
	ready chan struct{}
	once  sync.Once
	// changed receives a value, without blocking, when a report should be made soon.
	changed chan struct{}
	// random returns a number from 0 to 1; it spreads the calls of different hosts (spread.go).
	random func() float64
	// session identifies this process of the daemon for the registry.
	session string

	// reporting serialises reports, so that the last answer is the newest.
	reporting ctxMutex
	// files reads the files that domains name.
	files fileLooker
	// halted reports that ops were halted and have not been resumed.
	halted atomic.Bool
	// polling counts the polls for tasks that are open or about to begin again.
	polling atomic.Int32
	// pendingView is a view that was read and not confirmed yet. It is guarded by reporting.
	pendingView *pendingView
	// halting receives the result of the present halt, nil if there is none. Only Run uses it.
	halting chan error
	// lastReport is the registry's last full report. It is guarded by reporting.
	lastReport lastReport

	mu    sync.Mutex
	view  View
	host  api.Host // zero until the registry has answered once
	err   error    // why the last report failed
	tried bool
	// currentAt is when the view was last known to be current; zero for a view of an earlier
	// process.
	currentAt time.Time
	// viewErr is why the last attempt to read a newer view failed; nil if it succeeded.
	viewErr error
	// taken counts the grants of this process, see pendingView.
	taken int64
	// tasks are the running tasks.
	tasks map[string]bool
	// found has the changed instances, by id.
	found map[string]finding
	// listeners, migrations and remarks are the registered functions (listen.go).
	listeners  []Listener
	migrations func(ctx context.Context) ([]api.Migration, error)
	remarks    func(instanceID string) string
	// passing has the domains that were in a transient state at the last report.
	passing map[string]bool
}

// finding is a change of an instance since Volferry's last operation. It is published only once a
// newer view confirms it, because the view may be old.
type finding struct {
	Note
	since time.Time
	sure  bool
}

// Note describes how an instance differs from what Volferry left.
type Note struct {
	InstanceID, InstanceName, Text string
	// RunsElsewhere reports that the guest runs, on disks that are not at the locations of its
	// volumes.
	RunsElsewhere bool
}

// reportTimeout bounds one report.
const reportTimeout = 10 * time.Second

// New returns an uplink with the stored data of an earlier process. It does nothing before Run or
// the first call.
func New(cfg Config) (*Uplink, error) {
	u := &Uplink{
		cfg: cfg, state: cfg.State,
		ready: make(chan struct{}), reporting: make(ctxMutex, 1), changed: make(chan struct{}, 1), session: uuid.NewString(), random: rand.Float64, tasks: map[string]bool{},
	}
	if err := readJSON(u.state.viewPath(), &u.view); err != nil {
		return nil, fmt.Errorf("read what the registry last said: %w; move %s away only if no instance of this host runs: it says which volumes they may have", err, u.state.viewPath())
	}
	u.halted.Store(u.Fence() != nil)
	return u, nil
}

// String names the task.
func (u *Uplink) String() string { return "registry uplink" }

// Ready is closed after the first attempt: a daemon works without its registry, and reports that.
func (u *Uplink) Ready() <-chan struct{} { return u.ready }

// Changed requests a report soon, because the content of reports has changed.
func (u *Uplink) Changed() {
	select {
	case u.changed <- struct{}{}:
	default: // a report is requested already
	}
}

// note stores why the registry cannot be used, and reports whether the reason is new.
func (u *Uplink) note(err error) (news bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	news = errChanged(u.err, err)
	u.err, u.tried = err, true
	return news
}

// errChanged reports whether err differs from the previous error, which is nil if there was none.
func errChanged(last, err error) bool { return last == nil || last.Error() != err.Error() }

func (u *Uplink) knownHost() (api.Host, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.host, u.host.ID != ""
}

// Token returns the token of this host's changes at the registry: its id and its present epoch, 0
// if it has none yet.
func (u *Uplink) Token() (hostID string, epoch int64) {
	return u.cfg.HostID, u.state.Epoch()
}

// Err returns why the registry cannot be reached, nil if it can.
func (u *Uplink) Err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// Fence returns this host's fence, nil if it is not fenced.
func (u *Uplink) Fence() *Fence { return u.state.fence() }

// Up reports whether the registry answered the last report. Before the first
// answer it is false, while Err is nil.
func (u *Uplink) Up() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.upLocked()
}

// upLocked is Up for callers that hold mu.
func (u *Uplink) upLocked() bool { return u.err == nil && u.host.ID != "" }

// ctxMutex is a mutex that stops waiting when the context ends.
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
