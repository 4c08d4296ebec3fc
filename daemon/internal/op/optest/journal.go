// SPDX-License-Identifier: Apache-2.0

package optest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/volferry/volferry/daemon/internal/op"
)

var errInjected = errors.New("injected by the test")

// Journal is an op.Journal in memory. The zero value is not usable.
type Journal struct {
	mu      sync.Mutex
	ops     []op.Op
	records map[string][]op.Record
	stored  int // records, refused ones included
	appends int
	failAt  map[int]bool // by number of the record; true: it is stored nevertheless
	down    bool
	after   func(op.Record)
}

// NewJournal returns an empty journal.
func NewJournal() *Journal {
	return &Journal{records: map[string][]op.Record{}, failAt: map[int]bool{}}
}

// FailAppend makes the Append of the nth record (from 1, over all ops) return an error. With
// stored, the records are stored nevertheless, as if only the answer was lost.
func (j *Journal) FailAppend(n int, stored bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failAt[n] = stored
}

// FailNext is FailAppend for the next record.
func (j *Journal) FailNext(stored bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failAt[j.stored+1] = stored
}

// Appends returns how often Append was called.
func (j *Journal) Appends() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.appends
}

// SetDown makes every Create and Append fail until SetDown(false).
func (j *Journal) SetDown(down bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.down = down
}

// FailFor is SetDown for a while.
func (j *Journal) FailFor(how time.Duration) {
	j.SetDown(true)
	time.AfterFunc(how, func() { j.SetDown(false) })
}

// AfterAppend sets a function that is called, without a lock, after every record is stored and
// before its Append returns.
func (j *Journal) AfterAppend(f func(op.Record)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.after = f
}

// Cut removes all records of an op except the first keep.
func (j *Journal) Cut(opID string, keep int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records[opID] = slices.Clip(j.records[opID][:keep])
}

// Create implements op.Journal.
func (j *Journal) Create(_ context.Context, o op.Op) (op.Op, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down {
		return op.Op{}, fmt.Errorf("%w: %w", op.ErrJournal, errInjected)
	}
	if old, ok := j.find(o.ID); ok {
		if old.Kind != o.Kind || old.Group != o.Group || !bytes.Equal(old.Input, o.Input) {
			return op.Op{}, op.ErrMismatch
		}
		return old, nil
	}
	j.ops = append(j.ops, o)
	return o, nil
}

// Append implements op.Journal.
func (j *Journal) Append(_ context.Context, records ...op.Record) error {
	after, err := j.store(records)
	if err != nil {
		return err
	}
	if after != nil {
		for _, r := range records {
			after(r)
		}
	}
	return nil
}

func (j *Journal) store(records []op.Record) (after func(op.Record), err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.appends++
	stored, fail := false, false
	for range records {
		j.stored++
		if kept, due := j.failAt[j.stored]; due {
			stored, fail = kept, true
		}
	}
	if j.down || (fail && !stored) {
		return nil, fmt.Errorf("%w: %w", op.ErrJournal, errInjected)
	}
	for i, r := range records {
		if _, ok := j.find(r.OpID); !ok {
			return nil, fmt.Errorf("append to op %s: %w", r.OpID, op.ErrNotFound)
		}
		if due := int64(len(j.records[r.OpID])+i) + 1; r.Seq != due || r.OpID != records[0].OpID {
			return nil, fmt.Errorf("%w: record %d of op %s where %d is due", op.ErrJournal, r.Seq, r.OpID, due)
		}
	}
	for _, r := range records {
		j.records[r.OpID] = append(j.records[r.OpID], r)
	}
	if fail {
		return nil, fmt.Errorf("%w: %w", op.ErrJournal, errInjected)
	}
	return j.after, nil
}

// Unfinished implements op.Journal.
func (j *Journal) Unfinished(context.Context) ([]op.Op, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var ops []op.Op
	for _, o := range j.ops {
		rs := j.records[o.ID]
		if n := len(rs); n == 0 || rs[n-1].Kind != op.EventFinished {
			ops = append(ops, o)
		}
	}
	return ops, nil
}

// Op implements op.Journal.
func (j *Journal) Op(_ context.Context, id string) (op.Op, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if o, ok := j.find(id); ok {
		return o, nil
	}
	return op.Op{}, fmt.Errorf("op %s: %w", id, op.ErrNotFound)
}

// Group implements op.Journal.
func (j *Journal) Group(_ context.Context, group string) ([]op.Op, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var ops []op.Op
	for _, o := range j.ops {
		if group != "" && o.Group == group {
			ops = append(ops, o)
		}
	}
	return ops, nil
}

// Ops returns the ops of one kind, oldest first: all, or only unfinished ones.
func (j *Journal) Ops(ctx context.Context, kind string, unfinishedOnly bool) ([]op.Op, error) {
	j.mu.Lock()
	ops := slices.Clone(j.ops)
	j.mu.Unlock()
	if unfinishedOnly {
		var err error
		if ops, err = j.Unfinished(ctx); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(ops, func(o op.Op) bool { return o.Kind != kind }), nil
}

// Records implements op.Journal.
func (j *Journal) Records(_ context.Context, opID string) ([]op.Record, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.records[opID]), nil
}

func (j *Journal) find(id string) (op.Op, bool) {
	i := slices.IndexFunc(j.ops, func(o op.Op) bool { return o.ID == id })
	if i < 0 {
		return op.Op{}, false
	}
	return j.ops[i], true
}
