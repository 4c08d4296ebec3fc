// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// Request is a requested change.
type Request struct {
	// Who names the caller in the audit trail.
	Who string
	// OpID is the Idempotency-Key of the request, "" for none. An op with several requests has an
	// OpID for each.
	OpID string
	// Owner is a namespace of OpIDs. Requests with Owner "" share one namespace.
	Owner string
	// What names the kind of request, and Body has all its arguments; both are the same for a
	// repeated OpID.
	What string
	Body any
}

// KeepAnswers is how long an answer is kept for a repeated request. No host with an unfinished op
// is expected to be silent for so long.
const KeepAnswers = 90 * 24 * time.Hour

// maxHostAnswer bounds the kept answer to a host's request, in bytes: several times the largest
// expected answer.
const maxHostAnswer = 4 << 20

// HashRequest returns a hash of a request.
func HashRequest(what string, body any) ([]byte, error) {
	b, err := json.Marshal([]any{what, body})
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	sum := sha256.Sum256(b)
	return sum[:], nil
}

// key returns the key of the stored answer. It is unambiguous, because an OpID has no blank.
func (r Request) key() string {
	if r.OpID == "" || r.Owner == "" {
		return r.OpID
	}
	return r.Owner + " " + r.OpID
}

func lookUpAnswer(ctx context.Context, tx *Tx, req Request, hash []byte, answer any) (found bool, err error) {
	if req.OpID == "" {
		return false, nil
	}
	if tx.hasNoAnswer(req.key()) {
		return false, nil
	}
	var request, response []byte
	err = tx.QueryRowContext(ctx, "SELECT request, response FROM idempotency WHERE key = ?", req.key()).Scan(&request, &response)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up idempotency key: %w", err)
	}
	if string(request) != string(hash) {
		return false, api.Errorf(api.CodeIdempotencyMismatch, "the op id %s was used for another request; use a new one", req.OpID)
	}
	if err := json.Unmarshal(response, answer); err != nil {
		return false, fmt.Errorf("decode kept answer: %w", err)
	}
	return true, nil
}

func keepAnswer(ctx context.Context, tx *Tx, req Request, hash []byte, answer any, at time.Time) (bytes int, err error) {
	if req.OpID == "" {
		return 0, nil
	}
	response, err := json.Marshal(answer)
	if err != nil {
		return 0, fmt.Errorf("encode answer: %w", err)
	}
	if req.Owner != "" && len(response) > maxHostAnswer {
		return 0, api.Errorf(api.CodeInvalidArgument, "the change was not made: its answer, which is kept in case the request is sent again, would have %d bytes, and may have %d", len(response), maxHostAnswer)
	}
	if _, err := tx.write(ctx, "INSERT INTO idempotency (key, request, response, at_us) VALUES (?, ?, ?, ?)",
		req.key(), hash, string(response), at.UnixMicro()); err != nil {
		return 0, fmt.Errorf("keep answer: %w", err)
	}
	tx.noteAnswer(req.key())
	return len(response), nil
}

// ExpireAnswers deletes answers older than KeepAnswers.
func (l *Ledger) ExpireAnswers(ctx context.Context) error {
	if err := l.DeleteInBatches(ctx, "DELETE FROM idempotency WHERE at_us < ? AND seq IN (SELECT seq FROM idempotency ORDER BY seq LIMIT ?)",
		l.now().Add(-KeepAnswers).UnixMicro()); err != nil {
		return fmt.Errorf("forget old answers: %w", err)
	}
	return nil
}
