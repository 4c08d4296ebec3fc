// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

// An admission refuses a caller that may not make the change now.
type admission func(context.Context, *DB, *Tx) error

// Mutate is ledger.Mutate after a check of the caller's token. It returns stale_epoch for a fenced
// host or for an epoch that is not the host's, and registry_unavailable for a host that has not
// shown its mark since the registry started (admitCompared).
func Mutate[T any](ctx context.Context, db *DB, call Call, what string, request any, do func(context.Context, *Tx) (T, error)) (T, error) {
	if call.Host == nil {
		return mutateIf(ctx, db, call, what, request, admitToken, do)
	}
	if !db.changeBytes.Allow(call.Host.ID, db.now()) {
		return *new(T), api.Errorf(api.CodeRegistryUnavailable, "the change was not made: what a host changes may add %d MiB to the registry at once and %d KiB a second; try again later",
			changeBytesAtOnce>>20, changeBytesPerSecond>>10)
	}
	return mutateIf(ctx, db, call, what, request, admitToken, func(ctx context.Context, tx *Tx) (T, error) {
		tx.OnCommit(func() { db.changeBytes.Spend(call.Host.ID, tx.Kept(), db.now()) })
		return do(ctx, tx)
	})
}

// The changes of one host may add this much to the trail and the kept answers, at once and per
// second. It suffices to adopt 500 instances with 20 disks each.
const (
	changeBytesAtOnce    = 64 << 20
	changeBytesPerSecond = 16 << 10
)

func mutateIf[T any](ctx context.Context, db *DB, call Call, what string, request any, admit admission, do func(context.Context, *Tx) (T, error)) (T, error) {
	req := ledger.Request{Who: call.Who, OpID: call.Key, What: what, Body: request}
	if call.Host != nil {
		req.Owner = call.Host.ID
	}
	var tx *Tx
	return ledger.Mutate(ctx, db.ledger, req,
		func(ctx context.Context, c *ledger.Change) error {
			tx = db.newTx(c, call)
			return admit(ctx, db, tx)
		},
		func(ctx context.Context, _ *ledger.Change) (T, error) { return do(ctx, tx) })
}

func admitToken(ctx context.Context, db *DB, tx *Tx) error {
	if err := admitWritable(ctx, db, tx); err != nil || tx.Call.Host == nil {
		return err
	}
	host, err := tx.hostRow(ctx, tx.Call.Host.ID)
	if errors.Is(err, sql.ErrNoRows) {
		return api.Errorf(api.CodeStaleEpoch, "the registry does not know the host %s; it must report before it changes anything", validate.Quote(tx.Call.Host.ID)).With("epoch", 0)
	}
	if err != nil {
		return err
	}
	tx.host, tx.HostName = &host, host.Name
	if err := db.admitCompared(host); err != nil {
		return err
	}
	return tx.admitEpoch(host, tx.Call.Host.Epoch)
}

func admitWritable(_ context.Context, db *DB, _ *Tx) error { return db.writable() }

// admitAlways is the admission of changes that a read-only store accepts.
func admitAlways(context.Context, *DB, *Tx) error { return nil }
