// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
)

const (
	// maxBatch bounds the changes in a commit, and so how long the first waits for the last.
	maxBatch = 512
	// checkpointEvery is the number of changes after which the checkpointer checks the length of
	// the log.
	checkpointEvery = 256
)

type submission struct {
	ctx context.Context
	// key is the key of the change's kept answer, "" for none.
	key string
	// do may run a second time, after all its effects were undone.
	do   func(context.Context, *Tx) error
	done chan error
}

// writer is the only goroutine that changes the database. It puts all waiting changes into one
// transaction: they share the cost of a commit.
type writer struct {
	statements *statements
	onCommit   func(changes int, took time.Duration)
	onTrail    func(End)
	announce   func()
	queue      chan submission
	pauses     chan maintenance
	closing    chan struct{}
	stopped    chan struct{}
	// end is the end of the audit trail as of the last commit; nil means that it must be read. Only
	// the writer's goroutine uses end and cache.
	end   *End
	cache Cache
	// stored is the number of the last event on stable storage.
	stored    atomic.Int64
	gatherFor time.Duration
	// last is the number of changes in the last commit.
	last int
	// checkpoint gets a value after every checkpointEvery changes, without blocking the writer.
	checkpoint chan struct{}
	since      int
}

// maintenance is work on the database outside of a transaction.
type maintenance struct {
	do   func() error
	done chan error
}

// startWriter starts the writer. The writer calls announce after each commit, before the changes
// are answered.
func startWriter(db *sql.DB, end End, o Options, announce func()) *writer {
	w := &writer{
		statements: newStatements(db),
		end:        &end,
		cache:      o.Cache,
		onCommit:   o.OnCommit,
		onTrail:    o.OnTrail,
		gatherFor:  o.GatherFor,
		announce:   announce,
		checkpoint: make(chan struct{}, 1),
		queue:      make(chan submission, maxBatch),
		pauses:     make(chan maintenance),
		closing:    make(chan struct{}),
		stopped:    make(chan struct{}),
	}
	if w.cache == nil {
		w.cache = noCache{}
	}
	w.stored.Store(end.Seq)
	go w.run()
	return w
}

type noCache struct{}

func (noCache) BeforeExec(string) {}
func (noCache) Undo()             {}
func (noCache) Reset()            {}

func (w *writer) stop() {
	close(w.closing)
	<-w.stopped
}

func (w *writer) submit(ctx context.Context, key string, do func(context.Context, *Tx) error) error {
	c := submission{ctx: ctx, key: key, do: do, done: make(chan error, 1)}
	select {
	case w.queue <- c:
	case <-ctx.Done():
		return fmt.Errorf("wait for the registry's writer: %w", ctx.Err())
	case <-w.stopped:
		return errStopped()
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the registry's writer: %w", ctx.Err())
	case <-w.stopped:
	}
	// The change may have been the writer's last one.
	select {
	case err := <-c.done:
		return err
	default:
		return errStopped()
	}
}

func (w *writer) pause(ctx context.Context, do func() error) error {
	m := maintenance{do: do, done: make(chan error, 1)}
	select {
	case w.pauses <- m:
		return <-m.done
	case <-ctx.Done():
		return fmt.Errorf("wait for the registry's writer: %w", ctx.Err())
	case <-w.stopped:
		return errStopped()
	}
}

func errStopped() error {
	return api.Errorf(api.CodeRegistryUnavailable, "the registry is stopping; nothing was changed")
}

func (w *writer) run() {
	defer close(w.stopped)
	for {
		select {
		case first := <-w.queue:
			w.commit(w.fill(first))
		case m := <-w.pauses:
			m.done <- m.do()
		case <-w.closing:
			return
		}
	}
}

// fill returns first and the changes that share its commit: all waiting changes and, for at most
// gatherFor, further changes until there are as many as in the last commit. A commit's cost hardly
// depends on its number of changes, and clients answered together send their next changes
// together. A single client does not wait.
func (w *writer) fill(first submission) []submission {
	batch := w.addWaiting([]submission{first})
	if len(batch) < w.last && w.gatherFor > 0 {
		batch = w.addWaiting(w.gather(batch))
	}
	w.last = len(batch)
	return batch
}

func (w *writer) addWaiting(batch []submission) []submission {
	for len(batch) < maxBatch {
		select {
		case c := <-w.queue:
			batch = append(batch, c)
		default:
			return batch
		}
	}
	return batch
}

func (w *writer) gather(batch []submission) []submission {
	over := time.NewTimer(w.gatherFor)
	defer over.Stop()
	for len(batch) < w.last {
		select {
		case c := <-w.queue:
			batch = append(batch, c)
		case <-over.C:
			return batch
		}
	}
	return batch
}

func (w *writer) commit(batch []submission) {
	begin := time.Now()
	results := make([]error, len(batch))
	if err := w.transact(batch, results); err != nil {
		unavailable := api.Errorf(api.CodeRegistryUnavailable, "the registry cannot store changes; nothing was changed: %v", err)
		for i := range results {
			results[i] = unavailable
		}
	}
	if w.onCommit != nil {
		w.onCommit(len(batch), time.Since(begin))
	}
	w.announce()
	for i, c := range batch {
		c.done <- results[i]
	}
	if w.since += len(batch); w.since >= checkpointEvery {
		w.since = 0
		select {
		case w.checkpoint <- struct{}{}:
		default: // the checkpointer is already notified
		}
	}
}

// transact makes a batch of changes and fills results. An error means that no change was made.
//
// A savepoint costs more than many changes do, and a refused change has rarely written. So the
// batch first runs without savepoints, and again with savepoints if a change with writes must be
// undone.
func (w *writer) transact(batch []submission, results []error) error {
	// The context of one request must not end the transaction of the others.
	ctx := context.Background()
	defer w.statements.learn(ctx)
	err := w.try(ctx, batch, results, false)
	if !errors.Is(err, errNeedsSavepoints) {
		return err
	}
	if len(batch) == 1 {
		return nil // the transaction was rolled back
	}
	return w.try(ctx, batch, results, true)
}

func (w *writer) try(ctx context.Context, batch []submission, results []error, savepoints bool) error {
	tx, err := w.begin(ctx, savepoints)
	if err != nil {
		return err
	}
	err = tx.lookUpKeys(ctx, keysOf(batch))
	for i := 0; i < len(batch) && err == nil; i++ {
		results[i], err = attempt(ctx, tx, batch[i])
	}
	if err == nil {
		err = tx.commit()
	}
	if err != nil {
		// Read the stored end again.
		w.end = nil
		w.cache.Reset()
		return errors.Join(err, tx.rollback())
	}
	if w.end = tx.end; w.end == nil {
		return nil
	}
	w.stored.Store(w.end.Seq)
	if w.onTrail != nil {
		w.onTrail(*w.end)
	}
	return nil
}

func keysOf(batch []submission) (keys []string) {
	for _, c := range batch {
		if c.key != "" {
			keys = append(keys, c.key)
		}
	}
	return keys
}

// attempt makes one change or undoes it. refused is the change's own error; broken means that the
// whole transaction failed.
func attempt(ctx context.Context, tx *Tx, c submission) (refused, broken error) {
	if err := c.ctx.Err(); err != nil {
		return fmt.Errorf("wait for the registry's writer: %w", err), nil
	}
	tx.beginChange()
	refused = runChange(ctx, tx, c)
	if tx.broken == nil && sqlitedb.StorageFailed(refused) {
		tx.broken = refused
	}
	return refused, tx.endChange(ctx, refused == nil)
}

// runChange turns a panic, which would end the writer, into the change's own error.
func runChange(ctx context.Context, tx *Tx, c submission) (err error) {
	defer func() {
		if what := recover(); what != nil {
			err = fmt.Errorf("change panicked: %v\n%s", what, debug.Stack())
		}
	}()
	return c.do(ctx, tx)
}

func (w *writer) begin(ctx context.Context, savepoints bool) (*Tx, error) {
	tx, err := w.statements.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	return &Tx{tx: tx, statements: w.statements, bound: map[string]prepared{}, savepoints: savepoints, end: w.end, cache: w.cache}, nil
}
