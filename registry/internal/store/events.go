// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/volferry/volferry/internal/api"
)

// maxEvents is how many events one look at the trail returns.
const maxEvents = 1000

// audit adds an event to the trail, in the transaction of the change that it
// tells of.
func (tx *changeTx) audit(ctx context.Context, e api.Event) error {
	_, err := tx.addEvent(ctx, e)
	return err
}

// addEvent adds e to the trail and returns it with what was filled in: its
// place, the caller, and time and op id where they were missing.
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
	if e.OpID == "" {
		e.OpID = tx.call.Key
	}
	content, err := json.Marshal(e)
	if err != nil {
		return e, fmt.Errorf("encode audit event: %w", err)
	}
	hash := chain(end.hash, content)
	if err := tx.exec(ctx, "INSERT INTO events (seq, content, hash) VALUES (?, ?, ?)", e.Seq, string(content), hash); err != nil {
		return e, err
	}
	tx.end = &trailEnd{seq: e.Seq, hash: hash}
	return e, nil
}

// trailEnd is the newest event of the audit trail.
type trailEnd struct {
	seq  int64
	hash []byte
}

// trailEnd returns where the trail ends, with the running change's own events.
func (t *writeTx) trailEnd(ctx context.Context) (*trailEnd, error) {
	if t.end != nil {
		return t.end, nil
	}
	var end trailEnd
	err := t.QueryRowContext(ctx, "SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").Scan(&end.seq, &end.hash)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("read end of audit trail: %w", err)
	}
	t.end = &end
	return t.end, nil
}

// chain is the hash of an event that follows the one with hash prev.
func chain(prev, content []byte) []byte {
	h := sha256.New()
	h.Write(prev)
	h.Write(content)
	return h.Sum(nil)
}

// Events returns the events after the one with sequence number since, oldest
// first, at most 1000 of them.
func (s *Store) Events(ctx context.Context, since int64) ([]api.Event, error) {
	scan := func(row scanner) (api.Event, error) {
		var (
			content []byte
			e       api.Event
		)
		if err := row.Scan(&content); err != nil {
			return e, err
		}
		return e, json.Unmarshal(content, &e)
	}
	return queryAll(ctx, s.db.Read, scan, "SELECT content FROM events WHERE seq > ? ORDER BY seq LIMIT ?", since, maxEvents)
}

// NextCommit returns a channel that is closed when something was committed
// after the call: ask for it, then for Events, then wait.
func (s *Store) NextCommit() <-chan struct{} { return s.news.wait() }

// PostEvent adds an event of a host to the trail.
func (s *Store) PostEvent(ctx context.Context, call Call, in api.EventPost) (api.Event, error) {
	for what, text := range map[string]string{"object": in.Object, "from": in.From, "to": in.To, "op_id": in.OpID, "result": in.Result} {
		if err := checkText(what, text); err != nil {
			return api.Event{}, err
		}
	}
	if err := checkRequired("what", in.What); err != nil {
		return api.Event{}, err
	}
	return mutate(ctx, s, call, "event.post", in, func(ctx context.Context, tx *changeTx) (api.Event, error) {
		return tx.addEvent(ctx, api.Event{
			At: in.At.UTC(), What: in.What, Object: in.Object, From: in.From, To: in.To,
			OpID: in.OpID, Result: in.Result, Details: in.Details,
		})
	})
}

// VerifyAudit reads the whole trail and returns how many events it has, or an
// error that names the first one that is not as it was written or is missing.
// An end that was cut off cannot be seen from the trail alone.
func (s *Store) VerifyAudit(ctx context.Context) (n int64, err error) {
	rows, err := s.db.Read.QueryContext(ctx, "SELECT seq, content, hash FROM events ORDER BY seq")
	if err != nil {
		return 0, fmt.Errorf("read audit trail: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var prev []byte
	for rows.Next() {
		var (
			seq           int64
			content, hash []byte
		)
		if err := rows.Scan(&seq, &content, &hash); err != nil {
			return n, fmt.Errorf("read audit trail: %w", err)
		}
		n++
		if seq != n || !bytes.Equal(hash, chain(prev, content)) {
			return n, fmt.Errorf("the audit trail was changed at or before event %d", n)
		}
		prev = hash
	}
	if err := rows.Err(); err != nil {
		return n, fmt.Errorf("read audit trail: %w", err)
	}
	return n, nil
}
