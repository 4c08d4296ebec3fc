// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/volferry/volferry/internal/api"
)

// resultOK is the result of an event about something that was done.
const resultOK = "ok"

// maxEvents and maxEventBytes are how much one look at the trail returns: no event is
// so large that a reader cannot bear it, but a thousand might be together.
const (
	maxEvents     = 1000
	maxEventBytes = 1 << 20
)

// audit adds an event to the trail, in the transaction of the change that it
// tells of. Callers fill in what they alone know: object, states, details, and
// the generation in the token where a volume is concerned.
func (tx *changeTx) audit(ctx context.Context, e api.Event) error {
	_, err := tx.addEvent(ctx, e)
	return err
}

// addEvent adds e to the trail and returns it with what was filled in: its
// place, the caller and the epoch, and where they were missing the time, the op
// id, the host, and that it was done.
func (tx *changeTx) addEvent(ctx context.Context, e api.Event) (api.Event, error) {
	end, err := tx.trailEnd(ctx)
	if err != nil {
		return e, err
	}
	e.Seq = end.seq + 1
	if e.At.IsZero() {
		e.At = tx.at
	}
	e.Who = tx.call.Who
	e.OpID = cmp.Or(e.OpID, tx.call.Key)
	e.Result = cmp.Or(e.Result, resultOK)
	if e.Host == "" && tx.host != nil {
		e.Host = tx.host.name
	}
	if tx.epoch != 0 {
		token := api.Token{Epoch: tx.epoch}
		if e.Token != nil {
			token.Generation = e.Token.Generation
		}
		e.Token = &token
	}
	content, err := json.Marshal(e)
	if err != nil {
		return e, fmt.Errorf("encode audit event: %w", err)
	}
	hash := chain(end.hash, content)
	if err := tx.exec(ctx, addEventRow, e.Seq, string(content), hash); err != nil {
		return e, err
	}
	tx.end = &trailEnd{seq: e.Seq, hash: hash}
	tx.passFaultPoints(e)
	return e, nil
}

// passFaultPoints calls Options.FaultPoint on both sides of the commit of an event.
func (tx *changeTx) passFaultPoints(e api.Event) {
	if tx.faultPoint == nil {
		return
	}
	name := e.What
	if e.From != "" && e.To != "" {
		name += "." + e.To
	}
	tx.faultPoint(name + ".before_commit")
	tx.onCommit(func() { tx.faultPoint(name + ".after_commit") })
}

// trailEnd is the newest event of the audit trail.
type trailEnd struct {
	seq  int64
	hash []byte
}

// trailEnd returns where the trail ends, with the running change's own events.
func (t *writeTx) trailEnd(ctx context.Context) (*trailEnd, error) {
	if t.end == nil {
		end, err := readTrailEnd(ctx, t)
		if err != nil {
			return nil, err
		}
		t.end = end
	}
	return t.end, nil
}

func readTrailEnd(ctx context.Context, q querier) (*trailEnd, error) {
	var end trailEnd
	err := q.QueryRowContext(ctx, "SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").Scan(&end.seq, &end.hash)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("read end of audit trail: %w", err)
	}
	return &end, nil
}

// chain is the hash of an event that follows the one with hash prev.
func chain(prev, content []byte) []byte {
	h := sha256.New()
	h.Write(prev)
	h.Write(content)
	return h.Sum(nil)
}

// Events returns the events after the one with sequence number since, oldest
// first, at most 1000 of them and about 1 MiB. An empty list is the end of the trail.
func (s *Store) Events(ctx context.Context, since int64) ([]api.Event, error) {
	events, size := []api.Event{}, 0
	err := eachRow(ctx, s.db.Read, func(row scanner) (more bool, err error) {
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
	}, "SELECT content FROM events WHERE seq > ? ORDER BY seq LIMIT ?", since, maxEvents)
	return events, unreadable(err)
}

// NextCommit returns a channel that is closed when something was committed
// after the call: ask for it, then for Events, then wait.
func (s *Store) NextCommit() <-chan struct{} { return s.news.wait() }
