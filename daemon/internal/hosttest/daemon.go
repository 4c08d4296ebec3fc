// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/volferry/volferry/daemon/internal/op"
)

// Program configures a Daemon.
type Program[M any] struct {
	Runner op.Config
	// New returns the manager of a starting daemon, and registers its plans with the runner.
	New func(runner *op.Runner) M
	// Run does the manager's own work until ctx ends. It may be nil.
	Run func(m M, ctx context.Context) error
}

// Daemon is a manager with its runner. It may be killed and started again on the same journal,
// from any goroutine.
type Daemon[M any] struct {
	// Restarts are awaited at the end of the test.
	Restarts sync.WaitGroup

	t       *testing.T
	program Program[M]

	mu      sync.Mutex
	manager M
	runner  *op.Runner
	stop    func()
}

// Start starts a daemon until the end of the test.
func Start[M any](t *testing.T, p Program[M]) *Daemon[M] {
	t.Helper()
	d := &Daemon[M]{t: t, program: p}
	d.boot(nil)
	t.Cleanup(func() {
		d.Restarts.Wait()
		d.Halt()
	})
	return d
}

func (d *Daemon[M]) boot(begin func(context.Context, *op.Runner) error) {
	runner, err := op.New(d.program.Runner)
	if err != nil {
		panic(err) // only the test's goroutine may call t.Fatal
	}
	m := d.program.New(runner)
	if begin == nil {
		begin = func(ctx context.Context, r *op.Runner) error { return r.Resume(ctx) }
	}
	if err := begin(context.Background(), runner); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	if run := d.program.Run; run != nil {
		work.Go(func() {
			if err := run(m, ctx); err != nil && ctx.Err() == nil {
				d.t.Error(err)
			}
		})
	}
	d.manager, d.runner = m, runner
	d.stop = func() {
		cancel()
		work.Wait()
		runner.Stop()
	}
}

// Halt kills the daemon.
func (d *Daemon[M]) Halt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stop()
}

// Boot starts a daemon after a kill. begin is the first call of its runner; nil stands for Resume.
func (d *Daemon[M]) Boot(begin func(context.Context, *op.Runner) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.boot(begin)
}

// Restart kills the daemon and starts another.
func (d *Daemon[M]) Restart() { d.RestartAfter(func() {}) }

// RestartAfter kills the daemon, calls happen, and starts another daemon.
func (d *Daemon[M]) RestartAfter(happen func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stop()
	happen()
	d.boot(nil)
}

// Replace does the same as RestartAfter for a daemon that hangs: it does not wait for the daemon's
// end.
func (d *Daemon[M]) Replace(happen func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	go d.stop()
	happen()
	d.boot(nil)
}

// Now returns the present manager and runner.
func (d *Daemon[M]) Now() (M, *op.Runner) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.manager, d.runner
}

// AwayFor makes a system unreachable for a time, and then wakes the ops that wait for it.
func (d *Daemon[M]) AwayFor(how time.Duration, setAway func(away bool), waiting string) {
	setAway(true)
	time.AfterFunc(how, func() {
		setAway(false)
		_, runner := d.Now()
		runner.Wake(waiting)
	})
}

// WantIdle fails the test if an op is unfinished.
func (d *Daemon[M]) WantIdle() {
	d.t.Helper()
	_, runner := d.Now()
	for _, st := range runner.Active() {
		d.t.Errorf("op %s is left in step %s, waiting for %q: %+v", st.Op.Kind, st.Step, st.Waiting, st.Failure)
	}
}
