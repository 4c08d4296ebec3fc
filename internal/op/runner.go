// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Runner runs ops, each in a goroutine of its own. All methods may be called from any
// goroutine. When the daemon starts, everything is registered first (Register, OnChange,
// OnFinished); then Resume comes before the first Submit, so that the ops of an earlier run
// keep their turn.
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

func (r *Runner) runs() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.stopped && !r.halted
}

// enlist has Stop wait for the caller, who calls r.wg.Done, unless the runner does not run.
func (r *Runner) enlist() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped || r.halted {
		return false
	}
	r.wg.Add(1)
	return true
}

// enter gives an op its turn, and makes it one that is active.
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

// retire forgets an op whose finished record is in the journal.
func (r *Runner) retire(a *activeOp) {
	r.mu.Lock()
	delete(r.active, a.op.ID)
	r.mu.Unlock()
	a.interrupt(ErrFinished)
	r.queue.leave(a.ticket)
}

// activeOp is an op in memory: one that is not finished. Only its goroutine
// changes its progress; an op that waits for the operator has none.
type activeOp struct {
	r      *Runner
	op     Op
	plan   *Plan
	ticket *ticket
	// ctx ends with Stop, and with Halt outside of critical sections.
	ctx    context.Context
	cancel context.CancelFunc

	// forward is what steps get as context before the commit point; an
	// interruption cancels it.
	forward   context.Context
	interrupt context.CancelCauseFunc

	// inDoubt are records that the journal did not confirm. Whether they are there
	// must be read before anything else is written.
	inDoubt []Record
	// announced is the step whose started record was stored with the end of the step before:
	// nothing of it was done yet. It is empty for all other steps.
	announced string

	mu       sync.Mutex
	progress Progress
	// broken: the records cannot be followed, or what follows them has panicked, so
	// nothing may be written.
	broken error
	// trouble: the journal does not take the next record.
	trouble error
	// claimed: a Continue or a WhileParked is at work on the parked op.
	claimed bool
	// halted: ctx ends when the op is in no critical section.
	halted bool
	// waiting is what the op waits for, zero if it does not.
	waiting waiting
	// changed is closed, and replaced, when anything above changes.
	changed chan struct{}
}

// waiting is the reason why an op does nothing, and since when.
type waiting struct {
	on    string
	since time.Time
	// behind is the op whose turn it is, empty if it is nobody's but a TryLock.
	behind string
}

// plan returns the plan of a kind, nil if the runner does not know it.
func (r *Runner) plan(kind string) *Plan {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plans[kind]
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
