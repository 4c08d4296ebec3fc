// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/volferry/volferry/internal/api"
)

const resultOK = "ok"

// MaxEvents and maxEventBytes bound one read of the trail, in events and in bytes.
const (
	MaxEvents     = 1000
	maxEventBytes = 1 << 20
)

// MaxEventDetails bounds the details of an event, in bytes of JSON: the trail is kept for ever.
const MaxEventDetails = 256 << 10

// boundDetails returns the details of an event, or only their size if they are too long.
func boundDetails(details map[string]any) (map[string]any, error) {
	if len(details) == 0 {
		return details, nil
	}
	b, err := json.Marshal(details)
	if err != nil {
		return nil, fmt.Errorf("encode details of audit event: %w", err)
	}
	if len(b) > MaxEventDetails {
		return map[string]any{"details_left_out_bytes": len(b)}, nil
	}
	return details, nil
}

// Audit adds an event to the trail in the transaction of the change. The caller sets object,
// states, details and, for a volume, the generation in e.Token.
func (tx *Change) Audit(ctx context.Context, e api.Event) error {
	_, err := tx.AddEvent(ctx, e)
	return err
}

// AddEvent is Audit, and returns the event with its sequence number, caller and epoch and, unless
// set before, time, op id, host and result.
func (tx *Change) AddEvent(ctx context.Context, e api.Event) (api.Event, error) {
	end, err := tx.End(ctx)
	if err != nil {
		return e, err
	}
	e.Seq = end.Seq + 1
	if e.At.IsZero() {
		e.At = tx.At
	}
	e.Who = tx.who
	e.OpID = cmp.Or(e.OpID, tx.opID)
	e.Result = cmp.Or(e.Result, resultOK)
	e.Host = cmp.Or(e.Host, tx.HostName)
	if tx.Epoch != 0 {
		token := api.Token{Epoch: tx.Epoch}
		if e.Token != nil {
			token.Generation = e.Token.Generation
		}
		e.Token = &token
	}
	if e.Details, err = boundDetails(e.Details); err != nil {
		return e, err
	}
	content, err := json.Marshal(e)
	if err != nil {
		return e, fmt.Errorf("encode audit event: %w", err)
	}
	hash := chain(end.Hash, content)
	if _, err := tx.write(ctx, "INSERT INTO events (seq, content, hash) VALUES (?, ?, ?)", e.Seq, string(content), hash); err != nil {
		return e, fmt.Errorf("store audit event: %w", err)
	}
	tx.kept += len(content)
	tx.end = &End{Seq: e.Seq, Hash: hash}
	tx.passFaultPoints(e)
	return e, nil
}

func (tx *Change) passFaultPoints(e api.Event) {
	if tx.faultPoint == nil {
		return
	}
	name := e.What
	if e.From != "" && e.To != "" {
		name += "." + e.To
	}
	tx.faultPoint(name + ".before_commit")
	tx.OnCommit(func() { tx.faultPoint(name + ".after_commit") })
}

// End returns the end of the trail, including the events of the running change.
func (t *Tx) End(ctx context.Context) (End, error) {
	if t.end == nil {
		end, err := ReadEnd(ctx, t)
		if err != nil {
			return end, err
		}
		t.end = &end
	}
	return *t.end, nil
}

// Events returns up to MaxEvents events, and about 1 MiB, after sequence number since, oldest
// first. An empty list means that there are no more.
func (l *Ledger) Events(ctx context.Context, since int64) ([]api.Event, error) {
	return l.events(ctx, "SELECT content FROM events WHERE seq > ? ORDER BY seq LIMIT ?", since, MaxEvents)
}

// LastEvents returns the last n events after since, oldest first. It returns fewer if they exceed
// about 1 MiB.
func (l *Ledger) LastEvents(ctx context.Context, since int64, n int) ([]api.Event, error) {
	events, err := l.events(ctx, "SELECT content FROM events WHERE seq > ? ORDER BY seq DESC LIMIT ?", since, n)
	slices.Reverse(events)
	return events, err
}

func (l *Ledger) events(ctx context.Context, query string, since int64, limit int) ([]api.Event, error) {
	events, size := []api.Event{}, 0
	err := EachRow(ctx, l.db.Read, func(row Scanner) (more bool, err error) {
		var content sql.RawBytes
		if err := row.Scan(&content); err != nil {
			return false, err
		}
		if size += len(content); size > maxEventBytes && len(events) > 0 {
			return false, nil
		}
		var e api.Event
		if err := json.Unmarshal(content, &e); err != nil {
			return false, err
		}
		events = append(events, e)
		return true, nil
	}, query, since, limit)
	return events, Unreadable(err)
}
