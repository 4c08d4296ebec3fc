// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Runner runs each op in its own goroutine. All methods are safe for concurrent use. At the start
// of the daemon, first register everything (Register, OnChange, OnFinished), then call Resume, and
// only then Submit, so that the ops of an earlier run keep their turn.
type Runner struct {
	cfg   Config
	queue *keyedQueue
	wakes *wakes

	wg sync.WaitGroup

	// halting serializes Halt and Resume. It is taken before admit, and never by Submit: Halt
	// waits for a step that submits an op.
	halting sync.Mutex

	// admit gives ops the same order in the journal and in the queue. It is held during writes to
	// the journal; mu never is.
	admit sync.Mutex

	// ctx ends with Stop.
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	stopped bool // for good
	halted  bool // until Resume
	whole   bool // every op of the journal is in the queue, from Resume until Halt
	active  map[string]*activeOp

	plans      map[string]*Plan
	kinds      []string
	onChange   []func(opID string)
	onFinished []func(Status)
}

// New returns a runner without op kinds.
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

func (r *Runner) runs() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.stopped && !r.halted
}

// enlist makes Stop and Halt wait until the caller calls r.wg.Done. It returns false if the runner
// does not run.
func (r *Runner) enlist() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped || r.halted {
		return false
	}
	r.wg.Add(1)
	return true
}

func (r *Runner) enter(a *activeOp) {
	r.queue.enter(a.ticket)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active[a.op.ID] = a
}

func (r *Runner) lookup(id string) *activeOp {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.active[id]
}

// retire forgets an op after the journal has its finished record.
func (r *Runner) retire(a *activeOp) {
	r.mu.Lock()
	delete(r.active, a.op.ID)
	r.mu.Unlock()
	a.interrupt(ErrFinished)
	r.queue.leave(a.ticket)
}

// activeOp is an unfinished op in memory. Only its goroutine changes its progress; a parked op has
// no goroutine.
type activeOp struct {
	r  *Runner
	op Op
	// plan is nil if this program cannot follow the op; noPlan is the reason.
	plan   *Plan
	noPlan error
	ticket *ticket
	ctx    context.Context
	cancel context.CancelFunc

	// forward is the context of steps before the commit point; an interruption cancels it.
	forward   context.Context
	interrupt context.CancelCauseFunc

	// inDoubt are records that the journal did not confirm. Before the next write, the journal must
	// be read to see whether it has them.
	inDoubt []Record
	// announced is the current step if its started record was stored together with the end of the
	// previous step, and the step has not begun. Otherwise it is empty.
	announced string

	mu       sync.Mutex
	progress Progress
	// broken: the records cannot be followed, or the runner panicked, so nothing may be written.
	broken  error
	trouble error
	// claimed: Continue or WhileParked acts on the parked op.
	claimed bool
	// halted: ctx ends once the op is outside critical sections.
	halted  bool
	waiting waiting
	// changed is closed and replaced when a field above changes.
	changed chan struct{}
}

type waiting struct {
	on    string
	since time.Time
	// behind is the op that has the turn, empty if TryLock has it, and for other waits.
	behind string
}

func (r *Runner) kind(kind string) *Plan {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plans[kind]
}

func (r *Runner) plan(o *Op) (*Plan, error) {
	kind := r.kind(o.Kind)
	if kind == nil {
		return nil, fmt.Errorf("%w: %w %q", ErrHistory, ErrUnknownKind, o.Kind)
	}
	return kind.Of(o)
}

func (r *Runner) changed(opID string) {
	r.mu.Lock()
	functions := r.onChange
	r.mu.Unlock()
	for _, f := range functions {
		f(opID)
	}
}

func (r *Runner) finished(st Status) {
	r.mu.Lock()
	functions := r.onFinished
	r.mu.Unlock()
	for _, f := range functions {
		f(st)
	}
}
