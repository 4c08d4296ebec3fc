// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/retry"
)

// Registry is what the uplink needs of the registry (client.Registry).
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

// Ops are the operations of this host, as far as the uplink meets them.
type Ops interface {
	// TryLock calls f while no op has one of the keys, and says whether it did. It
	// does not wait: an op waits for the report that it asks for.
	TryLock(keys []string, f func()) bool
	// Halt returns when no op is at work any more; none begins before Resume. It
	// may be called again.
	Halt(ctx context.Context) error
	// Resume lets the ops go on. Each looks first whether what it works on is
	// still this host's.
	Resume(ctx context.Context) error
}

// Config says who this host is, and whom the uplink speaks for.
type Config struct {
	HostID   string
	HostName string
	BootID   string
	Version  string
	// State is what this host must not forget. The view is kept beside it.
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
	// session tells the registry one process of the daemon from the next.
	session string

	// reporting makes reports one after the other, so that the last answer is
	// the newest.
	reporting ctxMutex
	// halted: ops were halted and have not been resumed.
	halted atomic.Bool
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
	// taken counts what was granted in this process, see pendingView.
	taken int64
	// tasks are those that run.
	tasks map[string]bool
	// found is what is not as it was left, by instance.
	found map[string]finding
	// listeners and migrations were registered (listen.go).
	listeners  []Listener
	migrations func(ctx context.Context) ([]api.Migration, error)
	// passing are the domains that were in the middle of something when the last
	// report was made.
	passing map[string]bool
}

// New makes an uplink that remembers what an earlier process was told. It does
// nothing before Run or the first call.
func New(cfg Config) (*Uplink, error) {
	u := &Uplink{
		cfg: cfg, state: cfg.State,
		ready: make(chan struct{}), reporting: make(ctxMutex, 1), changed: make(chan struct{}, 1), session: uuid.NewString(), tasks: map[string]bool{},
	}
	if err := readJSON(u.state.viewPath(), &u.view); err != nil {
		return nil, fmt.Errorf("read what the registry last said: %w; move %s away only if no instance of this host runs: it says which volumes they may have", err, u.state.viewPath())
	}
	u.halted.Store(u.Fence() != nil)
	return u, nil
}

const (
	// reportEvery is how often the registry hears of this host.
	reportEvery = 5 * time.Second
	// busyReportEvery is the same while a migration is open, for those who watch
	// it at the registry.
	busyReportEvery = time.Second
	// retryEvery is the same while the registry does not answer, or while a fence
	// is not dealt with.
	retryEvery = time.Second
	// reportPause keeps a host on which much changes from reporting all the time.
	reportPause = 300 * time.Millisecond
	// reportTimeout bounds one report.
	reportTimeout = 10 * time.Second
)

// String names the task.
func (u *Uplink) String() string { return "registry uplink" }

// Ready is closed after the first try: a daemon works without its registry,
// and says so.
func (u *Uplink) Ready() <-chan struct{} { return u.ready }

// Run reports until ctx ends, and deals with a fence.
func (u *Uplink) Run(ctx context.Context) error {
	for {
		wait := u.beat(ctx)
		u.once.Do(func() { close(u.ready) })
		if retry.Sleep(ctx, reportPause) != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		select {
		case <-ctx.Done():
			return nil
		case <-u.changed:
		case <-time.After(wait - reportPause):
		}
	}
}

// beat makes one report, or one try to come back from a fence, and returns how
// long to wait until the next.
func (u *Uplink) beat(ctx context.Context) time.Duration {
	if err := u.comeBack(ctx); err != nil {
		if u.note(err) {
			u.cfg.Log.Warn("this host was fenced and cannot come back yet", "err", err)
		}
		return retryEvery
	}
	out, err := u.report(ctx)
	switch {
	case err != nil:
		return retryEvery
	case out.busy:
		return busyReportEvery
	}
	return reportEvery
}

// Changed asks for a report soon: something that the registry is told of has
// changed.
func (u *Uplink) Changed() {
	select {
	case u.changed <- struct{}{}:
	default: // there is one asked for
	}
}

// Refresh reports now. The error is the registry's, or says that this host is
// fenced.
func (u *Uplink) Refresh(ctx context.Context) error {
	if err := u.Admit(); err != nil {
		return err
	}
	_, err := u.report(ctx)
	return err
}

// ReportNow reports now what has become of an instance. The error is libvirt's, which does
// not tell it: what was reported has nothing of any instance. What the registry does not
// hear it is told again anyway; a report that it puts off, for a moment here, so that who
// asks then is not answered with the state of before.
func (u *Uplink) ReportNow(ctx context.Context) error {
	var out reportResult
	if u.Admit() == nil {
		_ = retry.Do(ctx, retry.Backoff{First: putOffPause, Max: putOffPause}, putOffBound, func() (err error) {
			out, err = u.report(ctx)
			return err
		}, reportLater)
	}
	return out.blind
}

// putOffPause is how long after a report that was put off the next one is sent, and
// putOffBound for how long an operation waits for that.
const (
	putOffPause = 500 * time.Millisecond
	putOffBound = 5 * time.Second
)

// note keeps why the registry cannot be worked with, and says whether that is
// news.
func (u *Uplink) note(err error) (news bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	news = u.err == nil || u.err.Error() != err.Error()
	u.err, u.tried = err, true
	return news
}

// Host returns this host as the registry last knew it, asking now if it never
// did.
func (u *Uplink) Host(ctx context.Context) (api.Host, error) {
	if host, known := u.knownHost(); known {
		return host, nil
	}
	if err := u.Refresh(ctx); err != nil {
		return api.Host{}, fmt.Errorf("introduce this host to the registry: %w", err)
	}
	host, _ := u.knownHost()
	return host, nil
}

func (u *Uplink) knownHost() (api.Host, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.host, u.host.ID != ""
}

// Token returns what every change of this host at the registry carries: its id
// and the epoch that it believes in, 0 if it was never told one.
func (u *Uplink) Token() (hostID string, epoch int64) {
	return u.cfg.HostID, u.state.Epoch()
}

// Err says why the registry cannot be reached, nil if it can.
func (u *Uplink) Err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// Up says whether the registry answered the last report. Before the first
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
