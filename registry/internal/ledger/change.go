// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"time"
)

// Change is a change in progress: its transaction, its caller, and common values of its events.
type Change struct {
	*Tx
	// At is the time of the change, for all its rows and events.
	At time.Time
	// HostName and Epoch are set if a host requests the change. Audit events without their own get
	// them.
	HostName string
	Epoch    int64

	who, opID  string
	kept       int
	faultPoint func(name string)
}

// Kept returns the number of bytes that the change adds to the trail. Once Mutate has called do,
// it includes the stored answer.
func (tx *Change) Kept() int { return tx.kept }

// NewChange returns a change in the running transaction tx, for the caller of req.
func (l *Ledger) NewChange(tx *Tx, req Request) *Change {
	return &Change{Tx: tx, At: l.now().UTC().Truncate(time.Microsecond), who: req.Who, opID: req.OpID, faultPoint: l.faultPoint}
}

// Mutate makes a change, with its audit events, in one transaction, and keeps its answer for
// repeated requests. admit may refuse the caller first. For a used OpID, Mutate returns the same
// request's kept answer, or else idempotency_mismatch. Otherwise it calls do. admit and do may run
// more than once; only the last run counts.
func Mutate[T any](ctx context.Context, l *Ledger, req Request, admit func(context.Context, *Change) error, do func(context.Context, *Change) (T, error)) (T, error) {
	var answer, none T
	hash, err := HashRequest(req.What, req.Body)
	if err != nil {
		return none, err
	}
	err = l.writer.submit(ctx, req.key(), func(ctx context.Context, w *Tx) error {
		answer = none // an earlier run may have filled it
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
		return none, err // a change that was refused late may have filled answer
	}
	return answer, nil
}

// Step is one statement of a change with several statements.
type Step struct {
	query string
	args  []any
}

// SQL returns a Step with its parameters.
func SQL(query string, args ...any) Step { return Step{query, args} }

// ExecAll runs the steps in order, as Exec does, until one fails.
func (tx *Change) ExecAll(ctx context.Context, steps ...Step) error {
	for _, s := range steps {
		if err := tx.Exec(ctx, s.query, s.args...); err != nil {
			return err
		}
	}
	return nil
}

// Exec runs a statement that fails only if the database does: the caller cannot act on its error.
func (tx *Change) Exec(ctx context.Context, query string, args ...any) error {
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("store change: %w", err)
	}
	return nil
}
