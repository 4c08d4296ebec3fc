// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostcache"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

type hostForgetTx struct{ *Tx }

// Forget removes, for an operator, a host that will not return. The host must be fenced and have
// no instances, open migrations or paused guests. Forget deletes its pools, tasks and finished
// migrations, which stay in the audit trail. Its volumes in shared pools become volumes of other
// hosts with the pool. Its other volumes are forgotten if volumes is true, otherwise Forget fails.
func (s *Hosts) Forget(ctx context.Context, call Call, ref string, volumes bool) (api.Host, error) {
	return mutateAudited(ctx, s.trail, call, "host.forget", "host/"+validate.Clip(ref), []any{ref, volumes}, admitToken, func(ctx context.Context, tx *Tx) (api.Host, error) {
		rules := hostForgetTx{tx}
		if err := tx.CheckOperator("forget a host"); err != nil {
			return api.Host{}, err
		}
		host, err := tx.resolveHost(ctx, ref)
		if err != nil {
			return api.Host{}, err
		}
		was := s.document(host)
		if err := rules.checkEmpty(ctx, host); err != nil {
			return was, err
		}
		if err := rules.reassignVolumes(ctx, host, volumes); err != nil {
			return was, err
		}
		tx.cache.hosts.invalidate()
		if err := tx.ExecAll(ctx,
			ledger.SQL("DELETE FROM live_hosts WHERE host_id = ?", host.ID),
			ledger.SQL("DELETE FROM pause_instances WHERE host_id = ?", host.ID),
			ledger.SQL("DELETE FROM pauses WHERE migration_id IN (SELECT id FROM migrations WHERE host_id = ?)", host.ID),
			ledger.SQL("DELETE FROM migrations WHERE host_id = ?", host.ID),
			ledger.SQL("DELETE FROM tasks WHERE host_id = ?", host.ID),
			ledger.SQL("DELETE FROM hosts WHERE id = ?", host.ID), // deletes its pools too
		); err != nil {
			return was, err
		}
		tx.OnCommit(func() { s.db.hosts.Remove(host.ID) })
		return was, tx.Audit(ctx, api.Event{
			What: "host.forget", Host: host.Name, Object: "host/" + host.ID, From: api.HostFenced, Token: &api.Token{Epoch: host.Epoch},
		})
	})
}

func (tx hostForgetTx) checkEmpty(ctx context.Context, host hostcache.Row) error {
	switch {
	case !host.Fenced:
		return api.Errorf(api.CodeStateForbidden, "cannot forget host %s: it is not fenced; fence it first if it is gone for good", host.Name)
	case host.Behind:
		return checkFenced(host, "forget host "+host.Name)
	}
	for _, left := range []struct{ what, query, advice string }{
		{
			"instances on the shelf", "SELECT name FROM instances WHERE host_id = ? AND state IN ('shelved', 'shelved_offloaded') ORDER BY name",
			"bring them back on other hosts: `volferryctl instance unshelve`; what is on the shelf of one is all that is known of it, and goes with `volferryctl instance forget`",
		},
		{"instances", "SELECT name FROM instances WHERE host_id = ? ORDER BY name", "forget them: `volferryctl instance forget`, after `volferryctl attachment delete --force`"},
		{
			"open migrations", "SELECT m.id FROM migrations m WHERE m.host_id = ? AND " + MigrationOpen + " ORDER BY m.id",
			"abandon them: `volferryctl migration abandon`",
		},
		{
			// The row of a move has the records of its guests, including guests on other fenced
			// hosts, which are resumed and unlocked when those hosts rejoin.
			"guests in moves with all guests paused", `SELECT DISTINCT i.migration_id FROM pause_instances i
				JOIN pauses p ON p.migration_id = i.migration_id JOIN migrations m ON m.id = i.migration_id
				WHERE (p.phase <> 'done' OR i.state <> 'restored') AND ?1 IN (i.host_id, m.host_id) ORDER BY 1`,
			"let them end; a guest that a fenced host has saved is woken when that comes back, or let go when its attachment is deleted",
		},
	} {
		names, err := ledger.QueryAll(ctx, tx, ledger.ScanString, left.query, host.ID)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			return stillHas(host, left.what, names, left.advice)
		}
	}
	return nil
}

func stillHas(host hostcache.Row, what string, names []string, advice string) error {
	const most = 3
	said := strings.Join(names[:min(most, len(names))], ", ")
	if len(names) > most {
		said += " and more"
	}
	return api.Errorf(api.CodeConflict, "cannot forget host %s: there are %s of it left (%s); %s", host.Name, what, said, advice).With("left", names[:min(most, len(names))])
}

// heirOf selects another host that reaches a volume of host ?1, NULL if there is none. Only the
// lost host has reported the path, so an heir gets the volume only at its own pool's path for it
// or, in a pool of devices, in the pool's directory.
var heirOf = `(SELECT p.host_id FROM pools p JOIN hosts h ON h.id = p.host_id JOIN locations l ON l.pool = p.name
	WHERE l.volume_id = volumes.id AND l.migration_id IS NULL AND l.scope = 'shared' AND p.shared = 1 AND p.host_id <> ?1
		AND (l.path = '' OR p.path <> '' AND CASE WHEN p.type IN ('dir', 'fs', 'netfs', 'vstorage')
			THEN l.path = rtrim(p.path, '/') || '/' || l.name
			ELSE substr(l.path, 1, length(rtrim(p.path, '/')) + 1) = rtrim(p.path, '/') || '/' END)
		AND ` + basesReachedBy("p.host_id", "?1", "l.backing") + ` ORDER BY h.fenced, h.name LIMIT 1)`

func (tx hostForgetTx) reassignVolumes(ctx context.Context, host hostcache.Row, forget bool) error {
	if err := tx.Exec(ctx, "UPDATE volumes SET host_id = "+heirOf+" WHERE host_id = ?1 AND "+heirOf+" IS NOT NULL", host.ID); err != nil {
		return err
	}
	own, err := ledger.QueryAll(ctx, tx, scanVolume, volumeQuery+" WHERE v.host_id = ? ORDER BY v.name", host.ID)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(own))
	for _, v := range own {
		names = append(names, v.Name)
	}
	if len(names) > 0 && !forget {
		return stillHas(host, "volumes", names, "no other host has them at these paths in a shared pool: --with-volumes forgets them too")
	}
	for _, v := range own {
		if err := tx.Exec(ctx, "DELETE FROM volumes WHERE id = ?", v.ID); err != nil {
			return err
		}
		if err := tx.auditVolume(ctx, v, api.Event{What: "volume.forget", From: string(v.Status)}, map[string]any{"location": v.Location}); err != nil {
			return err
		}
	}
	return nil
}
