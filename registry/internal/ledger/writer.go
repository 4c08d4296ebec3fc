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
	// maxBatch bounds how long the first change of a commit waits for the last.
	maxBatch = 512
	// checkpointEvery is after how many changes the length of the log is looked at.
	checkpointEvery = 256
)

// submission is a change that waits for the writer, and for its answer.
type submission struct {
	ctx context.Context
	// key is what the answer of the change is kept under, "" for none.
	key string
	// do may be run a second time, after everything that it did was undone.
	do   func(context.Context, *Tx) error
	done chan error
}

// writer is the one goroutine that changes the database. It takes the changes
// that are waiting, however many, into one transaction: the price of a commit
// on stable storage is paid once for all of them. Each can be undone alone, so
// that one that is refused leaves the others as they are.
type writer struct {
	statements *statements
	onCommit   func(changes int, took time.Duration)
	onTrail    func(End)
	announce   func()
	queue      chan submission
	pauses     chan maintenance
	closing    chan struct{}
	stopped    chan struct{}
	// end is where the audit trail ends, as of the last commit; nil if that has to
	// be read. Like cache it is the writer's goroutine's alone.
	end   *End
	cache Cache
	// stored is the number of the last event that is on stable storage.
	stored atomic.Int64
	// gatherFor is of Options; last is how many changes shared the last commit.
	gatherFor time.Duration
	last      int
	// checkpoint is sent to, without waiting, after every checkpointEvery changes.
	checkpoint chan struct{}
	since      int
}

// maintenance is work on the database that is not for a transaction.
type maintenance struct {
	do   func() error
	done chan error
}

// startWriter starts a writer. Announce is called after each commit and before its
// changes are answered.
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

// stop lets the running commit end and then the writer.
func (w *writer) stop() {
	close(w.closing)
	<-w.stopped
}

// submit is Ledger.Submit, of a change whose answer is kept under key.
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
	// It may have been the last thing that the writer did.
	select {
	case err := <-c.done:
		return err
	default:
		return errStopped()
	}
}

// pause runs do between two transactions and returns its error.
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

// fill returns first and what else is to share its commit: what is waiting already and, if others
// shared the last one, as many as that, which it waits a moment for. A commit costs much the same
// for few changes as for many, and those who were answered together come back together. Who is
// alone waits for nobody.
func (w *writer) fill(first submission) []submission {
	batch := w.addWaiting([]submission{first})
	if len(batch) < w.last && w.gatherFor > 0 {
		batch = w.addWaiting(w.gather(batch))
	}
	w.last = len(batch)
	return batch
}

// addWaiting adds to batch what is waiting already.
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

// gather adds to batch what comes, until it is as large as the last one or gatherFor is over.
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

// commit makes the changes of batch in one transaction and then answers each.
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
		default: // it is at work
		}
	}
}

// transact fills results. Its error means that none of the batch was made.
//
// A savepoint costs more than many a change, and a change that is refused has seldom
// written before. So the batch is tried without savepoints; if one of its changes has to be
// undone, the whole batch is undone, and made again with savepoints.
func (w *writer) transact(batch []submission, results []error) error {
	// Not a request's context: one that went away must not take the others'
	// transaction with it.
	ctx := context.Background()
	defer w.statements.learn(ctx)
	err := w.try(ctx, batch, results, false)
	if !errors.Is(err, errNeedsSavepoints) {
		return err
	}
	if len(batch) == 1 {
		return nil // it was undone with its transaction
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
		// What is stored now is read, not guessed.
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

// keysOf returns the keys of the changes that have one.
func keysOf(batch []submission) (keys []string) {
	for _, c := range batch {
		if c.key != "" {
			keys = append(keys, c.key)
		}
	}
	return keys
}

// attempt makes one change or leaves no trace of it. The first error is the
// change's own, the second one that sinks the whole transaction.
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

// runChange turns a panic into the change's own error: the writer has to
// outlive every bug, or nobody's locks can be given back.
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
