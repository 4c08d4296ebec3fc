// SPDX-License-Identifier: Apache-2.0

package op

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

func (a *activeOp) newRun(step string) *Run {
	p := a.snapshot()
	return &Run{
		op:        a.op,
		step:      step,
		outputs:   maps.Clone(p.Outputs),
		notes:     maps.Clone(p.Notes),
		note:      a.noteFor(step),
		committed: p.Committed,
	}
}

// noteFor returns the function that stores notes for Run.Note. It tries once: after an error the
// step does not act, and is tried again.
func (a *activeOp) noteFor(step string) func(context.Context, json.RawMessage) error {
	return func(ctx context.Context, data json.RawMessage) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		return a.append(event{EventNoted, step, data})
	}
}

// append tries once to store records. It returns ErrHistory for a record that cannot follow the
// stored ones. Any other error is ErrJournal: the records may be stored or not.
func (a *activeOp) append(events ...event) error {
	if a.inDoubt != nil {
		landed, err := a.settle()
		if err != nil {
			return err
		}
		if slices.EqualFunc(events, landed, event.is) {
			return nil
		}
	}
	next := a.snapshot()
	records := make([]Record, len(events))
	for i, e := range events {
		records[i] = Record{OpID: a.op.ID, Seq: next.Seq + 1, At: a.r.cfg.Now(), Step: e.step, Kind: e.kind, Data: e.data}
		var err error
		if next, err = next.after(a.plan, records[i]); err != nil {
			return err
		}
	}
	for _, e := range events {
		if e.kind == EventSucceeded || e.kind == EventUndone {
			if err := a.r.cfg.MakeDurable(); err != nil {
				return fmt.Errorf("make step %s durable: %w", e.step, journalError(err))
			}
		}
	}
	// Not the step's context: a cancelled append would leave a doubt.
	if err := a.r.cfg.Journal.Append(context.WithoutCancel(a.ctx), records...); err != nil {
		a.inDoubt = records
		return fmt.Errorf("record %q: %w", events[0].kind, journalError(err))
	}
	a.setProgress(next)
	for _, e := range events {
		a.r.cfg.Log.Debug("op moves", "op", a.op.ID, "step", e.step, "record", e.kind)
	}
	return nil
}

// settle reads whether the journal has the records in doubt (inDoubt), and returns them if it
// does. ErrHistory means other records in their place: another process writes for this op.
func (a *activeOp) settle() (landed []Record, err error) {
	records, err := a.r.cfg.Journal.Records(context.WithoutCancel(a.ctx), a.op.ID)
	if err != nil {
		return nil, fmt.Errorf("read back the last record: %w", journalError(err))
	}
	p, err := Replay(a.plan, records)
	if err != nil {
		return nil, err
	}
	doubt, known := a.inDoubt, a.snapshot().Seq
	switch n := int64(len(records)); {
	case n == known:
		a.inDoubt = nil
		return nil, nil
	case n == known+int64(len(doubt)) && slices.EqualFunc(doubt, records[known:], sameEvent):
		a.inDoubt = nil
		a.setProgress(p)
		return doubt, nil
	default:
		return nil, fmt.Errorf("%w: the journal holds %d records, %d were written here", ErrHistory, n, known)
	}
}

func sameEvent(r, other Record) bool { return event{other.Kind, other.Step, other.Data}.is(r) }

func (a *activeOp) setProgress(p Progress) {
	a.keep(p)
	a.r.changed(a.op.ID)
}

func (a *activeOp) keep(p Progress) {
	a.mu.Lock()
	defer a.mu.Unlock() // also after a panic
	a.progress = p
	a.haltLocked()
	a.announce()
}

func (a *activeOp) setTrouble(err error) {
	a.mu.Lock()
	same := a.trouble == nil && err == nil
	a.trouble = err
	if !same {
		a.announce()
	}
	a.mu.Unlock()
	if !same {
		a.r.changed(a.op.ID)
	}
}

func journalError(err error) error {
	if errors.Is(err, ErrJournal) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrJournal, err)
}

// encodeFailure omits details that JSON cannot express: the failure must reach the journal.
func encodeFailure(f Failure) json.RawMessage {
	data, err := json.Marshal(f)
	if err != nil {
		f.Details = nil
		return encodeFailure(f)
	}
	return data
}
