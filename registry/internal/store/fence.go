// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostcache"
	"github.com/volferry/volferry/registry/internal/validate"
)

// Fence records an operator's statement that the host cannot touch any volume any more. It
// increments the host's epoch, which makes the host's later requests stale, and sets its open
// migrations to orphaned; all locks stay. Another fence ends a rejoin in progress. If the host
// currently reports, Fence returns a conflict unless in.EvenIfUp is set.
func (s *Hosts) Fence(ctx context.Context, call Call, ref string, in api.HostFence) (api.Host, error) {
	return mutateAudited(ctx, s.trail, call, "host.fence", "host/"+validate.Clip(ref), []any{ref, in}, admitFence, func(ctx context.Context, tx *Tx) (api.Host, error) {
		moves := migrationTx{tx}
		resize := resizeTx{tx}
		if tx.host != nil {
			return api.Host{}, api.Errorf(api.CodePermissionDenied, "only an operator can fence a host, and you are host %s", tx.host.Name)
		}
		if err := validate.Evidence("evidence", in.Evidence); err != nil {
			return api.Host{}, err
		}
		host, err := tx.resolveHost(ctx, ref)
		if err != nil {
			return api.Host{}, err
		}
		if err := s.checkSilent(host, in); err != nil {
			return api.Host{}, err
		}
		if err := tx.setEpoch(ctx, host.ID, host.Epoch+1, true); err != nil {
			return api.Host{}, err
		}
		if err := moves.orphan(ctx, host.ID); err != nil {
			return api.Host{}, err
		}
		if err := resize.endAll(ctx, host.ID); err != nil {
			return api.Host{}, err
		}
		return s.audit(ctx, tx, host, api.Event{
			What: "host.fence", To: api.HostFenced, Token: &api.Token{Epoch: host.Epoch + 1},
			Details: map[string]any{"evidence": in.Evidence},
		})
	})
}

// admitFence allows an operator's fence even while the store is read-only: a fence only takes
// rights away, and no host may prevent it by a mark that makes the store read-only.
func admitFence(ctx context.Context, db *DB, tx *Tx) error {
	if tx.Call.Host != nil {
		return admitToken(ctx, db, tx)
	}
	return nil
}

// checkSilent refuses to fence a host that currently reports or waits for tasks, because the name
// may be wrong; in.EvenIfUp confirms it.
func (s *Hosts) checkSilent(host hostcache.Row, in api.HostFence) error {
	last, seen := s.db.hosts.LastSeen(host.ID)
	if !seen || host.Fenced || in.EvenIfUp || !s.db.isUp(host.ID, last) {
		return nil
	}
	return api.Errorf(api.CodeConflict, "cannot fence host %s: it was heard of %s ago, so it has power and a network; if it is the right host and cannot touch any volume all the same, say so: --even-if-up",
		host.Name, s.db.now().Sub(last).Round(time.Second)).With("last_seen_at", last.UTC())
}

// Rejoin ends the fence of a host that has released the volumes it lost. The host's orphaned
// migrations return to their earlier states. Nothing changes if the host needs no rejoin.
func (s *Hosts) Rejoin(ctx context.Context, call Call, ref string, in api.HostRejoin) (api.Host, error) {
	return mutateIf(ctx, s.db, call, "host.rejoin", []any{ref, in}, admitRejoin, func(ctx context.Context, tx *Tx) (api.Host, error) {
		moves := migrationTx{tx}
		host, err := tx.resolveHost(ctx, ref)
		if err != nil {
			return api.Host{}, err
		}
		if call.Host != nil && call.Host.ID != host.ID {
			return api.Host{}, notYourHost("rejoin as", host.Name)
		}
		if in.Epoch != host.Epoch {
			return api.Host{}, staleEpoch(host, in.Epoch)
		}
		if !host.Fenced && !host.Behind {
			return s.byID(ctx, tx, host.ID)
		}
		if err := tx.setEpoch(ctx, host.ID, host.Epoch, false); err != nil {
			return api.Host{}, err
		}
		if err := moves.unorphan(ctx, host.ID); err != nil {
			return api.Host{}, err
		}
		return s.audit(ctx, tx, host, api.Event{
			What: "host.rejoin", From: standingOf(host), To: api.HostUp, Token: &api.Token{Epoch: host.Epoch},
		})
	})
}

// admitRejoin admits a host with any epoch, unless admitCompared refuses the host.
func admitRejoin(ctx context.Context, db *DB, tx *Tx) error {
	if err := admitWritable(ctx, db, tx); err != nil || tx.Call.Host == nil {
		return err
	}
	host, err := tx.hostRow(ctx, tx.Call.Host.ID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil // Rejoin looks up the name, with a better error
	}
	if err != nil {
		return err
	}
	return db.admitCompared(host)
}

func standingOf(h hostcache.Row) string {
	if h.Fenced {
		return api.HostFenced
	}
	return "behind"
}

// setEpoch sets a host's epoch and whether it is fenced. If the database was restored from a
// backup, the host now counts as rejoined.
func (tx *Tx) setEpoch(ctx context.Context, hostID string, epoch int64, fenced bool) error {
	tx.cache.hosts.invalidate()
	return tx.Exec(ctx, "UPDATE hosts SET epoch = ?, fenced = ?, behind = 0 WHERE id = ?", epoch, fenced, hostID)
}

// audit audits a change of a host, and makes the store write the host's next report even if it is
// unchanged.
func (s *Hosts) audit(ctx context.Context, tx *Tx, was hostcache.Row, e api.Event) (api.Host, error) {
	e.Host, e.Object = was.Name, "host/"+was.ID
	if err := tx.Audit(ctx, e); err != nil {
		return api.Host{}, err
	}
	now, err := tx.hostRow(ctx, was.ID)
	if err != nil {
		return api.Host{}, err
	}
	tx.OnCommit(func() { s.db.hosts.Put(now, "") })
	return s.document(now), nil
}
