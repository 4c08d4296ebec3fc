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
	"github.com/volferry/volferry/daemon/internal/hv"
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

// Guards keep a domain from being started (package instance).
type Guards interface {
	Set(domainID, owner, reason string) error
	Clear(domainID, owner string) error
	Has(domainID, owner string) (bool, error)
	Of(domainID string) ([]guard.Guard, error)
	// List returns the reasons of all guards by domain.
	List() (map[string]string, error)
}

// Ops are the operations of this host, as far as the uplink has to do with them.
type Ops interface {
	// TryLock calls f while no op has one of the keys, and reports whether it did. It does not
	// wait, because an op may wait for the report that it has asked for.
	TryLock(keys []string, f func()) bool
	// Halt returns when no op is at work any more; none begins before Resume. It may be
	// called again.
	Halt(ctx context.Context) error
	// Resume lets the ops go on. Each first checks whether what it works on still belongs
	// to this host.
	Resume(ctx context.Context) error
}

// Listener is notified of what the registry says of this host.
type Listener interface {
	// Epoch is called with every epoch that the registry names for this host, before
	// the uplink acts on it.
	Epoch(epoch int64)
	// RegistryUp is called when the registry can be reached again.
	RegistryUp()
	// BeforeHalt is called when this host was fenced. Its ops are halted when BeforeHalt
	// returns.
	BeforeHalt(ctx context.Context)
	// Resumed is called when this host has come back from a fence and its ops go on. If it
	// returns an error, the ops are resumed once more, and it is called again.
	Resumed(ctx context.Context) error
}

// Config says who this host is, and on whose behalf the uplink works.
type Config struct {
	HostID   string
	HostName string
	BootID   string
	Version  string
	// State is what this host must not forget. The view is stored beside it.
	State *State
	// SharedPools are pools that other hosts see as well.
	SharedPools []string

	HV       hv.Hypervisor
	Registry Registry
	Guards   Guards
	Ops      Ops
	Log      *slog.Logger
}

// Uplink is the daemon's side of the registry. Safe for concurrent use.
type Uplink struct {
	cfg   Config
	state *State
	ready chan struct{}
	once  sync.Once
	// changed is sent to, without waiting, when a report should be made soon.
	changed chan struct{}
	// random returns a number from 0 to 1, for what hosts are not to do in one moment (spread.go).
	random func() float64
	// session tells the registry one process of the daemon from the next.
	session string

	// reporting makes reports one after the other, so that the last answer is
	// the newest.
	reporting ctxMutex
	// files looks at the files that domains name.
	files fileLooker
	// halted: ops were halted and have not been resumed.
	halted atomic.Bool
	// polling is how many polls for tasks are open, or will soon be again.
	polling atomic.Int32
	// pendingView is a view that was read and not confirmed yet. Of reporting.
	pendingView *pendingView
	// halting gets the outcome of the halt that is under way, nil if there is none. Of
	// Run.
	halting chan error
	// lastReport is what the registry need not hear again. Guarded by reporting.
	lastReport lastReport

	mu    sync.Mutex
	view  View
	host  api.Host // zero until the registry has answered once
	err   error    // why the last report failed
	tried bool
	// currentAt is when the view was last known to be what the registry says;
	// zero for one of an earlier process.
	currentAt time.Time
	// viewErr is why the last try to have a newer view failed; nil if it did not.
	viewErr error
	// taken counts what was granted in this process, see pendingView.
	taken int64
	// tasks are those that run.
	tasks map[string]bool
	// found is what is not as it was left, by instance.
	found map[string]finding
	// listeners, migrations and remarks were registered (listen.go).
	listeners  []Listener
	migrations func(ctx context.Context) ([]api.Migration, error)
	remarks    func(instanceID string) string
	// passing are the domains that were in the middle of something when the last
	// report was made.
	passing map[string]bool
}

// finding is something that is not as it was left with an instance. What is
// compared with is what the registry said a while ago, so it is told of only once
// the registry has said the same again.
type finding struct {
	Note
	since time.Time
	sure  bool
}

// Note describes how an instance differs from what Volferry left.
type Note struct {
	InstanceID, InstanceName, Text string
	// RunsElsewhere says that its guest runs, and that the disks of the domain are not where the
	// volumes are.
	RunsElsewhere bool
}

// reportTimeout bounds one report.
const reportTimeout = 10 * time.Second

// New makes an uplink that knows what an earlier process was told. It does nothing before
// Run or the first call.
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

// Ready is closed after the first try: a daemon works without its registry,
// and says so.
func (u *Uplink) Ready() <-chan struct{} { return u.ready }

// Changed asks for a report soon, because something has changed that reports contain.
func (u *Uplink) Changed() {
	select {
	case u.changed <- struct{}{}:
	default: // there is one asked for
	}
}

// note keeps why the registry cannot be worked with, and reports whether that is
// news.
func (u *Uplink) note(err error) (news bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	news = u.err == nil || u.err.Error() != err.Error()
	u.err, u.tried = err, true
	return news
}

func (u *Uplink) knownHost() (api.Host, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.host, u.host.ID != ""
}

// Token returns what every change of this host at the registry carries: its id and the
// epoch in which it believes itself to be, 0 if it was never told one.
func (u *Uplink) Token() (hostID string, epoch int64) {
	return u.cfg.HostID, u.state.Epoch()
}

// Err returns why the registry cannot be reached, nil if it can.
func (u *Uplink) Err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// Fence returns what is known of the fence of this host, nil if it is not fenced.
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

// ctxMutex is a mutex whose waiters give up when their context ends.
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
