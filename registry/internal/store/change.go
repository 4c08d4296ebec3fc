// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostcache"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

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

// HostToken is a host and the epoch that it believes to be in.
type HostToken struct {
	ID    string
	Epoch int64
	// Local says that the daemon came as an administrator of the registry's machine,
	// who may have guests of other hosts paused as well.
	Local bool
}

// Administers says whether the caller may ask for what is about other hosts than its
// own: an operator, and the daemon on the registry's machine.
func (c Call) Administers() bool { return c.Host == nil || c.Host.Local }

// Tx is a change in the making, with the rules that hold in it.
type Tx struct {
	*ledger.Change
	// Call is who asked for it.
	Call Call
	// host is the caller, where that is a host.
	host *hostcache.Row
	// cache and hosts are those of the Store.
	cache *rowCache
	hosts *hostcache.Cache
}

func (s *Store) newTx(c *ledger.Change, call Call) *Tx {
	return &Tx{Change: c, Call: call, cache: s.cache, hosts: s.hosts}
}

// admission says whether a caller may ask for a change now.
type admission func(context.Context, *Store, *Tx) error

// Mutate is ledger.Mutate, with admitToken: a host that comes with another epoch than
// its own, or is fenced, is refused with stale_epoch before anything else; and one that
// has not reported since the start with registry_unavailable, for what it was told may
// prove that the database is from a backup.
func Mutate[T any](ctx context.Context, s *Store, call Call, what string, request any, do func(context.Context, *Tx) (T, error)) (T, error) {
	return mutateIf(ctx, s, call, what, request, admitToken, do)
}

// mutateAudited is Mutate for calls whose refusal is news as well: it adds the
// event what to the trail, about object and with the error as its result.
func mutateAudited[T any](ctx context.Context, s *Store, call Call, what, object string, request any, admit admission, do func(context.Context, *Tx) (T, error)) (T, error) {
	v, err := mutateIf(ctx, s, call, what, request, admit, do)
	if err != nil {
		// The caller may have gone away; the attempt was made.
		err = errors.Join(err, s.AuditRefusal(context.WithoutCancel(ctx), call, what, object, err))
	}
	return v, err
}

// mutateIf is Mutate with an admission of its own.
func mutateIf[T any](ctx context.Context, s *Store, call Call, what string, request any, admit admission, do func(context.Context, *Tx) (T, error)) (T, error) {
	req := ledger.Request{Who: call.Who, OpID: call.Key, What: what, Body: request}
	if call.Host != nil {
		req.Owner = call.Host.ID
	}
	var tx *Tx
	return ledger.Mutate(ctx, s.ledger, req,
		func(ctx context.Context, c *ledger.Change) error {
			tx = s.newTx(c, call)
			return admit(ctx, s, tx)
		},
		func(ctx context.Context, _ *ledger.Change) (T, error) { return do(ctx, tx) })
}

// admitToken is the admission of every change that has no rules of its own.
func admitToken(ctx context.Context, s *Store, tx *Tx) error {
	if err := admitWritable(ctx, s, tx); err != nil || tx.Call.Host == nil {
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
	if err := s.admitCompared(host); err != nil {
		return err
	}
	return tx.admitEpoch(host, tx.Call.Host.Epoch)
}

// admitWritable takes whoever comes, unless the store is read-only.
func admitWritable(_ context.Context, s *Store, _ *Tx) error { return s.writable() }

// callerID is the id of the host that asks, "" for an operator.
func (tx *Tx) callerID() string {
	if tx.host == nil {
		return ""
	}
	return tx.host.ID
}
