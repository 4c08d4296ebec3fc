// SPDX-License-Identifier: Apache-2.0

package uplink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/volferry/volferry/daemon/internal/hosttest"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	thisHost  = "10000000-0000-4000-8000-000000000001"
	otherHost = "10000000-0000-4000-8000-000000000002"
	web       = "20000000-0000-4000-8000-000000000001"
	db        = "20000000-0000-4000-8000-000000000002"
)

var errBoom = errors.New("boom")

// registry is a registry in memory, with the parts that a host uses.
type registry struct {
	hosttest.Registry
	fenced      bool
	justStarted bool // it admits a host only after a report
	seq         int64
	volumes     []api.Volume
	instances   []api.Instance
	attachments []api.Attachment
	reports     []api.HostReport
	// whole is the last report that was not a digest; digest identifies it.
	whole    api.HostReport
	digest   string
	tooOften bool // it refuses reports for a time
	plain    bool // it gives no digests
	every    int  // its report interval in seconds, 0 if it sends none
	reads    int
	tasks    []api.Task
	sessions []string
	answers  map[string][]api.TaskAnswer
	newTask  chan struct{}
	// longestPoll limits the length of a poll, 0 for no limit; waits are the requested lengths.
	longestPoll time.Duration
	waits       []time.Duration
	polling     int // number of open polls
	besidePoll  int // reports during an open poll
}

func newRegistry(m *hosttest.Moments) *registry {
	return &registry{Registry: hosttest.Registry{Moments: m}, seq: 1, answers: map[string][]api.TaskAnswer{}, newTask: make(chan struct{}, 100)}
}

// do makes one request.
func (r *registry) do(name string, f func() error) error {
	_, err := hosttest.Ask(&r.Registry, name, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// set changes the registry's data.
func (r *registry) set(f func()) { r.With(func() { r.seq++; f() }) }

// fence fences this host and then takes attachments from it, like an operator.
func (r *registry) fence(lost ...string) {
	r.set(func() {
		r.NextEpoch(thisHost, false)
		r.fenced = true
		r.attachments = slices.DeleteFunc(r.attachments, func(a api.Attachment) bool { return slices.Contains(lost, a.ID) })
	})
}

func (r *registry) hostNow() api.Host {
	return api.Host{ID: thisHost, Name: "alpha", Status: api.HostUp, Epoch: r.Newest(thisHost), Mark: &api.RegistryMark{RegistryID: "r", Timeline: 1, Seq: r.seq, Hash: fmt.Sprint(r.seq)}}
}

func (r *registry) Report(_ context.Context, in api.HostReport) (host api.Host, err error) {
	err = r.do("Report", func() error {
		r.reports = append(r.reports, in)
		if r.polling > 0 {
			r.besidePoll++
		}
		r.justStarted = false
		if r.fenced {
			return r.CheckEpoch(thisHost, 0)
		}
		if err := r.CheckEpoch(thisHost, max(1, in.Epoch)); err != nil {
			return err
		}
		if r.tooOften {
			return api.Errorf(api.CodeRegistryUnavailable, "later, please").With(api.DetailReportLater, true)
		}
		if in.Digest == "" {
			r.whole, r.digest = in, fmt.Sprint("digest of report ", len(r.reports))
		} else if in.Digest != r.digest {
			return api.Errorf(api.CodeConflict, "all of it, please").With(api.DetailReportWhole, true)
		}
		host = r.hostNow()
		host.ReportEverySeconds = r.every
		if !r.plain {
			host.ReportDigest = r.digest
		}
		return nil
	})
	return host, err
}

func (r *registry) RejoinHost(_ context.Context, _ string, in api.HostRejoin) (host api.Host, err error) {
	err = r.do("RejoinHost", func() error {
		if r.justStarted {
			return api.Errorf(api.CodeRegistryUnavailable, "just started").With(api.DetailReportFirst, true)
		}
		if err := r.CheckEpoch(thisHost, in.Epoch); err != nil {
			return err
		}
		r.fenced = false
		host = r.hostNow()
		return nil
	})
	return host, err
}

func read[T any](r *registry, name string, of func() []T) (out []T, err error) {
	err = r.do(name, func() error {
		r.reads++
		out = slices.Clone(of())
		return nil
	})
	return out, err
}

func (r *registry) Hosts(context.Context) ([]api.Host, error) {
	return read(r, "Hosts", func() []api.Host { return []api.Host{r.hostNow()} })
}

func (r *registry) Pools(context.Context) ([]api.Pool, error) {
	return read(r, "Pools", func() []api.Pool { return nil })
}

func (r *registry) Types(context.Context) ([]api.VolumeType, error) {
	return read(r, "Types", func() []api.VolumeType { return nil })
}

func (r *registry) Policies(context.Context) ([]api.Policy, error) {
	return read(r, "Policies", func() []api.Policy { return nil })
}

func (r *registry) Volumes(context.Context) ([]api.Volume, error) {
	return read(r, "Volumes", func() []api.Volume { return r.volumes })
}

func (r *registry) Instances(context.Context) ([]api.Instance, error) {
	return read(r, "Instances", func() []api.Instance { return r.instances })
}

func (r *registry) Attachments(context.Context, string, string) ([]api.Attachment, error) {
	return read(r, "Attachments", func() []api.Attachment { return r.attachments })
}

// Tasks returns the unanswered tasks, and waits for some time if there are none.
func (r *registry) Tasks(ctx context.Context, _, session string, wait time.Duration) (out []api.Task, err error) {
	give := func() error {
		r.sessions = append(r.sessions, session)
		r.waits = append(r.waits, wait)
		if r.longestPoll > 0 && wait > r.longestPoll {
			return api.Errorf(api.CodeInvalidArgument, "wait_seconds is up to %v", r.longestPoll)
		}
		for _, t := range r.tasks {
			if len(r.answers[t.ID]) == 0 {
				out = append(out, t)
			}
		}
		return nil
	}
	if err := r.do("Tasks", give); err != nil || len(out) > 0 {
		return out, err
	}
	r.With(func() { r.polling++ })
	defer r.With(func() { r.polling-- })
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(wait):
		return nil, nil
	case <-r.newTask:
	}
	return out, r.do("Tasks", give)
}

func (r *registry) AnswerTask(_ context.Context, _, task string, in api.TaskAnswer) error {
	return r.do("AnswerTask", func() error {
		r.answers[task] = append(r.answers[task], in)
		return nil
	})
}

// ops are the operations of a daemon process.
type ops struct {
	moments *hosttest.Moments
	mu      sync.Mutex
	halted  bool
	halting time.Duration
}

func (o *ops) TryLock(_ []string, f func()) bool {
	if !o.run() {
		return false
	}
	f()
	return true
}

// slow makes a halt take that long.
func (o *ops) slow(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.halting = d
}

func (o *ops) Halt(context.Context) error {
	o.mu.Lock()
	lasts := o.halting
	o.mu.Unlock()
	<-time.After(lasts)
	return o.moments.Call("Halt", errBoom, func() error { o.is(true); return nil })
}

func (o *ops) Resume(context.Context) error {
	return o.moments.Call("Resume", errBoom, func() error { o.is(false); return nil })
}

func (o *ops) is(halted bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.halted = halted
}

func (o *ops) run() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.halted
}

// world is a host with two running instances, web and db, each with a volume.
type world struct {
	t        *testing.T
	moments  *hosttest.Moments
	fake     *hvtest.Fake
	hv       *hosttest.Hypervisor // fake, for the daemon
	registry *registry
	guards   *hosttest.Guards
	dir      string
	migs     []api.Migration
	// A test may replace the daemon's ports.
	specialHV       hv.Hypervisor
	specialRegistry Registry
	specialOps      Ops

	up    *Uplink
	ops   *ops
	stop  context.CancelFunc
	ended chan error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	m := &hosttest.Moments{}
	w := &world{t: t, moments: m, fake: hvtest.New(), registry: newRegistry(m), guards: hosttest.NewGuards(m), dir: t.TempDir()}
	w.hv = &hosttest.Hypervisor{Fake: w.fake, Moments: m}
	w.fake.AddPool(hv.PoolInfo{Name: "local", Type: "dir", Path: "/local", Active: true})
	w.fake.AddPool(hv.PoolInfo{Name: "nfs", Type: "netfs", Path: "/nfs", Active: true})
	w.fake.AddPool(hv.PoolInfo{Name: "san", Type: "logical", Path: "/dev/san", Active: true})
	w.fake.AddPool(hv.PoolInfo{Name: "ceph", Type: "rbd", Active: true})
	w.run("web", web, "/nfs/web.raw")
	w.run("db", db, "/nfs/db.raw")
	return w
}

// attachment returns the id of an instance's attachment.
func attachment(name string) string { return "attachment-" + name }

// run defines and starts an instance with one disk, which the registry has granted.
func (w *world) run(name, id, path string) {
	w.t.Helper()
	w.define(name, id, path)
	w.must(w.fake.Start(id))
	w.registry.volumes = append(w.registry.volumes, api.Volume{ID: "volume-" + name, Name: name + "-disk", Location: api.Location{Path: path}})
	w.registry.instances = append(w.registry.instances, api.Instance{ID: id, Name: name, Host: "alpha"})
	w.registry.attachments = append(w.registry.attachments, granted(name, id, path))
}

func granted(name, id, path string) api.Attachment {
	return api.Attachment{
		ID: attachment(name), VolumeID: "volume-" + name, InstanceID: id, Host: "alpha", DiskAttachment: api.DiskAttachment{Device: "vda"}, State: api.AttachmentAttached,
		Location: api.Location{Path: path, Format: api.FormatRaw},
	}
}

func (w *world) define(name, id, path string) {
	w.t.Helper()
	if !w.fake.Exists(path) {
		w.must(w.fake.CreateImage(path, hvtest.Raw, 8*hvtest.BlockSize))
	}
	w.must(w.fake.Define(hv.Domain{ID: id, Name: name, Config: []hv.Disk{{
		Target: "vda", Bus: "virtio", Device: "disk", Shareable: true, Terminated: true,
		Chain: []hv.Image{{Type: hv.SourceFile, Format: hvtest.Raw, Path: path}},
	}}}))
}

func (w *world) must(err error) {
	w.t.Helper()
	expect.OK(w.t, err)
}

// open returns the uplink of a starting daemon, not yet running.
func (w *world) open() *Uplink {
	w.t.Helper()
	state, err := OpenState(w.dir)
	w.must(err)
	w.ops = &ops{moments: w.moments, halted: state.fence() != nil}
	up, err := New(Config{
		HostID: thisHost, HostName: "alpha", BootID: "boot", Version: "1", State: state, SharedPools: []string{"san"},
		HV: cmp.Or[hv.Hypervisor](w.specialHV, w.hv), Registry: cmp.Or[Registry](w.specialRegistry, w.registry), Guards: w.guards, Ops: cmp.Or[Ops](w.specialOps, w.ops), Log: slog.New(slog.DiscardHandler),
	})
	w.must(err)
	up.ReportMigrations(func(context.Context) ([]api.Migration, error) {
		w.registry.Lock()
		defer w.registry.Unlock()
		return w.migs, nil
	})
	up.random = func() float64 { return 0.5 } // so that trials are reproducible
	w.up = up
	return up
}

// start runs the uplink of a starting daemon.
func (w *world) start() {
	w.t.Helper()
	w.open()
	w.runUplink()
}

// runUplink runs the newest uplink.
func (w *world) runUplink() {
	w.t.Helper()
	up := w.up
	ctx, cancel := context.WithCancel(w.t.Context())
	w.stop, w.ended = cancel, make(chan error, 1)
	go func() { w.ended <- up.Run(ctx) }()
}

// kill ends the uplink.
func (w *world) kill() {
	w.t.Helper()
	w.stop()
	w.must(<-w.ended)
}

// moving sets the open migrations.
func (w *world) moving(open ...api.Migration) {
	w.registry.With(func() { w.migs = open })
}

func (w *world) state(id string) hv.State {
	w.t.Helper()
	dom, err := w.fake.Domain(w.t.Context(), id)
	w.must(err)
	return dom.State
}

// report returns the newest report, with the content of its digest.
func (w *world) report() api.HostReport {
	w.registry.Lock()
	defer w.registry.Unlock()
	r := w.registry.reports[len(w.registry.reports)-1]
	if r.Digest != "" {
		whole := w.registry.whole
		r.Version, r.BootID, r.Pools, r.Instances = whole.Version, whole.BootID, whole.Pools, whole.Instances
	}
	return r
}

func bubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newWorld(t)) })
}

// running runs the daemon for a minute, then f, then kills the present daemon.
func running(t *testing.T, f func(w *world)) {
	t.Helper()
	bubble(t, func(w *world) {
		w.start()
		pass(time.Minute)
		f(w)
		w.kill()
	})
}

// interrupted arranges a happening at the nth call, which may kill the daemon, for a minute or
// until the daemon is dead. It returns the call, or "" if the host was back before.
func (w *world) interrupted(n int, h hosttest.Happening, dies bool) (name string) {
	w.t.Helper()
	if dies {
		h.Do = w.stop
	}
	w.moments.Arrange(n, h)
	pass(time.Minute)
	names := w.moments.Calls()
	w.moments.Cancel()
	// Calls after the host's return belong to other tests.
	if back := slices.Index(names, "Resume"); n <= len(names) && (back < 0 || n <= back+1) {
		name = names[n-1]
	}
	if dies && name != "" {
		w.must(<-w.ended)
	}
	return name
}

// pass lets fake time pass, until every goroutine waits.
func pass(d time.Duration) {
	<-time.After(d) // fake time
	synctest.Wait()
}
