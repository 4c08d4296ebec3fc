// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"time"
)

// Change is one change while it is made: its transaction, its caller, and what its events
// have in common.
type Change struct {
	*Tx
	// At is the time of the change: every row and event of it has this time.
	At time.Time
	// HostName and Epoch are those of the host that asks for the change, if a host does.
	// Events that name no other host get them.
	HostName string
	Epoch    int64

	who, opID  string
	kept       int
	faultPoint func(name string)
}

// Kept is how many bytes the change adds to what outlasts it: its events, and once do of Mutate has
// returned also its answer.
func (tx *Change) Kept() int { return tx.kept }

// NewChange returns a change, made for a caller in a running transaction.
func (l *Ledger) NewChange(tx *Tx, req Request) *Change {
	return &Change{Tx: tx, At: l.now().UTC().Truncate(time.Microsecond), who: req.Who, opID: req.OpID, faultPoint: l.faultPoint}
}

// Mutate makes a change, with its audit events, and keeps its answer, all in one
// transaction. First it asks admit whether the caller may ask for a change now. If the OpID
// was used for the same request, Mutate returns the kept answer; if it was used for another
// request, it returns idempotency_mismatch. Otherwise it makes the change. Admit and do may
// be run more than once; only the last time counts.
func Mutate[T any](ctx context.Context, l *Ledger, req Request, admit func(context.Context, *Change) error, do func(context.Context, *Change) (T, error)) (T, error) {
	var answer, none T
	hash, err := HashRequest(req.What, req.Body)
	if err != nil {
		return none, err
	}
	err = l.writer.submit(ctx, req.key(), func(ctx context.Context, w *Tx) error {
		answer = none // it may not be the first time
		tx := l.NewChange(w, req)
		if err := admit(ctx, tx); err != nil {
			return err
		}
		if found, err := lookUpAnswer(ctx, w, req, hash, &answer); found || err != nil {
			return err
		}
		answer, err = do(ctx, tx)
		if err != nil {
			return err
		}
		kept, err := keepAnswer(ctx, w, req, hash, answer, tx.At)
		tx.kept += kept
		return err
	})
	if err != nil {
		return none, err // a change that was refused late may have begun to fill it
	}
	return answer, nil
}

// Step is one statement of a change that has several.
type Step struct {
	query string
	args  []any
}

// SQL returns a Step with its parameters.
func SQL(query string, args ...any) Step { return Step{query, args} }

// ExecAll runs the steps in turn, as Exec does, until one fails.
func (tx *Change) ExecAll(ctx context.Context, steps ...Step) error {
	for _, s := range steps {
		if err := tx.Exec(ctx, s.query, s.args...); err != nil {
			return err
		}
	}
	return nil
}

// Exec runs a statement that does not fail for any reason that the caller could mend.
func (tx *Change) Exec(ctx context.Context, query string, args ...any) error {
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("store change: %w", err)
	}
	return nil
}
