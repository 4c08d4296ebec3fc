// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Config is what a Runner is made of. Journal is needed; the rest has defaults.
type Config struct {
	Journal Journal
	// Describe turns an error into what the journal keeps and the user sees.
	// Default: code "internal" and the error's text.
	Describe func(error) Failure
	// Log gets one line for each record and each try that went wrong. Default:
	// nothing is logged.
	Log *slog.Logger
	// FaultPoint is called with the names of FaultPoints as an op passes them,
	// so that a test can end the process there. It may not return.
	FaultPoint func(name string)
	// MakeDurable is called before every record that says that a step has happened or
	// is undone, and puts on stable storage what the step left to others to keep: a
	// program that renames a file does not sync the directory. Its error is that of a
	// journal that does not take the record. Default: nothing is done.
	MakeDurable func() error
	// MaxTries limits the tries of a step that asks for Retry, and those of a
	// step that must not fail. They are counted anew when the daemon starts and
	// when the operator says go on. Default 20.
	MaxTries int
	// WaitPoll is how often a step that waits for something looks by itself.
	// Default 5 s.
	WaitPoll time.Duration
	// Now stamps records. Nothing is decided by it. Default time.Now.
	Now func() time.Time
}

const (
	defaultMaxTries = 20
	defaultWaitPoll = 5 * time.Second
)

// Runner runs ops, each in a goroutine of its own. All methods may be called
// from any goroutine. At the start of the daemon everything is registered first
// (Register, OnChange, OnFinished); then Resume comes before the first Submit, so that
// ops of before keep their turn.
type Runner struct {
	cfg   Config
	queue *keyedQueue
	wakes *wakes

	wg sync.WaitGroup

	// halting makes a halt and a resume one after the other. It is taken before
	// admit, and never by Submit: a step may submit an op, and a halt waits for it.
	halting sync.Mutex

	// admit makes the order of ops in the journal their order in turns. It is
	// held while the journal is written, mu never is.
	admit sync.Mutex

	// ctx ends with Stop. It is the parent of those of the ops.
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	stopped bool // by Stop, for good
	halted  bool // by Halt, until Resume
	whole   bool // every op of the journal has its turn, from Resume until Halt
	active  map[string]*activeOp

	// What was registered, guarded by mu.
	plans      map[string]*Plan
	kinds      []string
	onChange   []func(opID string)
	onFinished []func(Status)
}

// New makes a runner that knows no op kind yet.
func New(cfg Config) (*Runner, error) {
	if cfg.Journal == nil {
		return nil, errors.New("a runner needs a journal")
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Runner{
		cfg:    cfg.withDefaults(),
		plans:  map[string]*Plan{},
		queue:  newKeyedQueue(),
		wakes:  newWakes(),
		ctx:    ctx,
		cancel: cancel,
		active: map[string]*activeOp{},
	}, nil
}

func (c Config) withDefaults() Config {
	if c.Describe == nil {
		c.Describe = func(err error) Failure { return Failure{Code: "internal", Message: err.Error()} }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.FaultPoint == nil {
		c.FaultPoint = func(string) {}
	}
	if c.MakeDurable == nil {
		c.MakeDurable = func() error { return nil }
	}
	if c.MaxTries <= 0 {
		c.MaxTries = defaultMaxTries
	}
	if c.WaitPoll <= 0 {
		c.WaitPoll = defaultWaitPoll
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Submit stores a new op and starts it; when it returns nil the op survives a
// crash, and a stop that comes at the same time: it is begun at the next start. The
// same op again is no error and is not started twice. A step may submit an op.
// Errors: ErrMismatch, ErrUnknownKind, ErrStopped, and ErrJournal. After ErrJournal
// the op may have been stored or not: submit it again.
func (r *Runner) Submit(ctx context.Context, o Op) error {
	if r.plan(o.Kind) == nil {
		return fmt.Errorf("submit op %s: %w %q", o.ID, ErrUnknownKind, o.Kind)
	}
	r.admit.Lock()
	defer r.admit.Unlock()
	if !r.runs() {
		return fmt.Errorf("submit op %s: %w", o.ID, ErrStopped)
	}
	if err := r.cfg.Journal.Create(ctx, o); err != nil {
		return fmt.Errorf("submit op %s: %w", o.ID, err)
	}
	if err := r.activate(ctx, o); err != nil && !errors.Is(err, ErrStopped) {
		r.activateLater(o)
		return fmt.Errorf("submit op %s: %w", o.ID, err)
	}
	return nil
}

// activateLater takes up an op that is stored, and whose records cannot be read now:
// else it would stand in the journal as one that runs, and nobody would run it.
func (r *Runner) activateLater(o Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped || r.halted {
		return
	}
	r.wg.Go(func() {
		for sleep(r.ctx, firstDelay) {
			r.admit.Lock()
			var err error
			if r.runs() {
				err = r.activate(r.ctx, o)
			}
			r.admit.Unlock()
			if err == nil || errors.Is(err, ErrStopped) {
				return
			}
		}
	})
}

// Resume starts every op of the journal that is not finished. One that waits
// for the operator goes on waiting and keeps its keys. If it returns an error it
// may be called again.
func (r *Runner) Resume(ctx context.Context) error {
	r.halting.Lock()
	defer r.halting.Unlock()
	r.admit.Lock()
	defer r.admit.Unlock()
	if !r.begin() {
		return fmt.Errorf("resume ops: %w", ErrStopped)
	}
	ops, err := r.cfg.Journal.Unfinished(ctx)
	if err != nil {
		return fmt.Errorf("resume ops: %w", err)
	}
	for _, o := range ops {
		if err := r.activate(ctx, o); err != nil {
			return fmt.Errorf("resume op %s: %w", o.ID, err)
		}
	}
	r.mu.Lock()
	r.whole = true
	r.mu.Unlock()
	return nil
}

// Stop ends the runner: it cancels what is running, waits until every
// goroutine has ended and writes nothing that says so, since a shutdown is not
// a failure. The ops go on at the next start.
func (r *Runner) Stop() {
	r.mu.Lock()
	r.stopped = true
	r.cancel()
	r.mu.Unlock()
	r.wg.Wait()
}

func (r *Runner) runs() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.stopped && !r.halted
}

// activate takes an op up that the journal holds, unless it is active already
// or finished. The caller holds admit.
func (r *Runner) activate(ctx context.Context, o Op) error {
	if r.lookup(o.ID) != nil {
		return nil
	}
	a := newActiveOp(r, o)
	if over, err := a.readBack(ctx); err != nil || over {
		a.cancel()
		return err
	}
	r.enter(a)
	if a.isParked() {
		r.cfg.Log.Error("op still waits for the operator", "op", o.ID)
		return nil
	}
	return r.start(a)
}

// enter gives an op its turn, and makes it one that is active.
func (r *Runner) enter(a *activeOp) {
	r.queue.enter(a.ticket)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active[a.op.ID] = a
}

// start runs the goroutine of an op, which must not have one.
func (r *Runner) start(a *activeOp) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped || r.halted || r.active[a.op.ID] != a { // a of before a halt is nobody's any more
		return ErrStopped
	}
	r.wg.Go(a.run)
	return nil
}

func (r *Runner) lookup(id string) *activeOp {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.active[id]
}

// retire forgets an op whose finished record is in the journal.
func (r *Runner) retire(a *activeOp) {
	r.mu.Lock()
	delete(r.active, a.op.ID)
	r.mu.Unlock()
	a.interrupt(ErrFinished)
	r.queue.leave(a.ticket)
}
