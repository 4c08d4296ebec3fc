// SPDX-License-Identifier: Apache-2.0

package store

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

// keepAnswers is how long the answer to a request is kept for the case that it
// is sent again: longer than any host stays away and still has an op to resume.
const keepAnswers = 90 * 24 * time.Hour

// Call says who asks for a change, and under which op id.
type Call struct {
	// Who is the caller for the audit trail.
	Who string
	// Caller is the same for all calls of one caller, for what is bounded for each; ""
	// is Who.
	Caller string
	// Key is the Idempotency-Key of the request, "" for none. A key stands for
	// one request: an op that makes several gives each its own. Those of a host are
	// its own: another one can neither use them up nor get their answers.
	Key string
	// Host is set where a daemon asks for its host, nil for an operator. The
	// change is refused with stale_epoch if the host has been fenced since, and
	// with not_your_host if it is about what is another host's.
	Host *HostToken
}

// storedKey is what the answer is kept under. No key has a blank in it.
func (c Call) storedKey() string {
	if c.Key == "" || c.Host == nil {
		return c.Key
	}
	return c.Host.ID + " " + c.Key
}

// HostToken is a host and the epoch that it believes to be in.
type HostToken struct {
	ID    string
	Epoch int64
	// Local says that the daemon came as an administrator of the registry's machine,
	// who may have guests of other hosts paused as well.
	Local bool
}

// Viewer is who reads. The zero Viewer is an operator, who sees everything; a
// host sees what is its own or within its reach, is refused the rest with
// not_your_host, and finds lists without it.
type Viewer struct{ HostID string }

// changeTx is a change in the making: its transaction, who asked for it, and
// the one time that everything in it bears.
type changeTx struct {
	*writeTx
	call Call
	at   time.Time
	// host is the caller, where that is a host.
	host *hostRow
	// epoch is the token that the change is made under, 0 without one.
	epoch int64
	// memory is Store.hosts.
	memory *hostMemory
	// faultPoint is Options.FaultPoint.
	faultPoint func(name string)
}

// admission says whether a caller may ask for a change now.
type admission func(context.Context, *Store, *changeTx) error

// mutate makes a change with its audit events and keeps its answer, all in one
// transaction. What names the kind of request, and request is all that the
// caller asked: a key that was used for the same is answered as then, and one
// that was used for something else is refused with idempotency_mismatch. A host
// that comes with another epoch than its own, or is fenced, is refused with
// stale_epoch before anything else; and one that has not reported since the start
// with registry_unavailable, for what it was told may prove that the database is
// from a backup.
func mutate[T any](ctx context.Context, s *Store, call Call, what string, request any, do func(context.Context, *changeTx) (T, error)) (T, error) {
	return mutateIf(ctx, s, call, what, request, admitToken, do)
}

// mutateAudited is mutate for calls whose refusal is news as well: it adds the
// event what to the trail, about object and with the error as its result.
func mutateAudited[T any](ctx context.Context, s *Store, call Call, what, object string, request any, admit admission, do func(context.Context, *changeTx) (T, error)) (T, error) {
	v, err := mutateIf(ctx, s, call, what, request, admit, do)
	if err != nil {
		// The caller may have gone away; the attempt was made.
		err = errors.Join(err, s.AuditRefusal(context.WithoutCancel(ctx), call, what, object, err))
	}
	return v, err
}

func mutateIf[T any](ctx context.Context, s *Store, call Call, what string, request any, admit admission, do func(context.Context, *changeTx) (T, error)) (T, error) {
	var answer T
	hash, err := hashRequest(what, request)
	if err != nil {
		return answer, err
	}
	err = s.writer.submit(ctx, func(ctx context.Context, w *writeTx) error {
		// It may not be the first time.
		var none T
		answer = none
		now := s.now()
		tx := &changeTx{writeTx: w, call: call, at: now.UTC().Truncate(time.Microsecond), memory: &s.hosts, faultPoint: s.faultPoint}
		if err := admit(ctx, s, tx); err != nil {
			return err
		}
		known, err := recall(ctx, w, call, hash, &answer)
		if known || err != nil {
			return err
		}
		answer, err = do(ctx, tx)
		if err != nil {
			return err
		}
		return remember(ctx, w, call, hash, answer, now)
	})
	if err != nil {
		// A change that was refused late may have begun to fill it.
		var none T
		return none, err
	}
	return answer, nil
}

// admitToken is the admission of every change that has no rules of its own.
func admitToken(ctx context.Context, s *Store, tx *changeTx) error {
	if err := admitAny(ctx, s, tx); err != nil || tx.call.Host == nil {
		return err
	}
	host, err := tx.hostRow(ctx, tx.call.Host.ID)
	if errors.Is(err, sql.ErrNoRows) {
		return api.Errorf(api.CodeStaleEpoch, "the registry does not know the host %s; it must report before it changes anything", quote(tx.call.Host.ID)).With("epoch", 0)
	}
	if err != nil {
		return err
	}
	tx.host = &host
	if err := s.admitHeard(host); err != nil {
		return err
	}
	return tx.admitEpoch(host, tx.call.Host.Epoch)
}

// admitAny takes whoever comes, unless the store is read-only.
func admitAny(_ context.Context, s *Store, _ *changeTx) error { return s.writable() }

// callerID is the id of the host that asks, "" for an operator.
func (tx *changeTx) callerID() string {
	if tx.host == nil {
		return ""
	}
	return tx.host.id
}

func hashRequest(what string, request any) ([]byte, error) {
	b, err := json.Marshal([]any{what, request})
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	sum := sha256.Sum256(b)
	return sum[:], nil
}

// recall fills answer if the key of the call is known.
func recall(ctx context.Context, tx *writeTx, call Call, hash []byte, answer any) (bool, error) {
	if call.Key == "" {
		return false, nil
	}
	var request, response []byte
	err := tx.QueryRowContext(ctx, "SELECT request, response FROM idempotency WHERE key = ?", call.storedKey()).Scan(&request, &response)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up idempotency key: %w", err)
	}
	if string(request) != string(hash) {
		return false, api.Errorf(api.CodeIdempotencyMismatch, "the op id %s was used for another request; use a new one", call.Key)
	}
	if err := json.Unmarshal(response, answer); err != nil {
		return false, fmt.Errorf("decode kept answer: %w", err)
	}
	return true, nil
}

func remember(ctx context.Context, tx *writeTx, call Call, hash []byte, answer any, at time.Time) error {
	if call.Key == "" {
		return nil
	}
	response, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	if _, err := tx.ExecContext(ctx, keepAnswer,
		call.storedKey(), hash, string(response), at.UnixMicro()); err != nil {
		return fmt.Errorf("keep answer: %w", err)
	}
	return nil
}

// statement is one step of a change that takes several.
type statement struct {
	query string
	args  []any
}

func sqlStep(query string, args ...any) statement { return statement{query, args} }

// execAll is exec of each step in turn, until one fails.
func (tx *changeTx) execAll(ctx context.Context, steps ...statement) error {
	for _, s := range steps {
		if err := tx.exec(ctx, s.query, s.args...); err != nil {
			return err
		}
	}
	return nil
}

// exec runs a statement that must not fail for a reason that a caller could
// do something about.
func (tx *changeTx) exec(ctx context.Context, query string, args ...any) error {
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("store change: %w", err)
	}
	return nil
}
