// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostcache"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

// Viewer is the caller of a read. The zero Viewer is an operator and reads everything. A host reads
// its own objects; the store refuses others with not_your_host and omits them from lists.
type Viewer struct{ HostID string }

// Conditions on the rows that a host owns; the host's id is ?1.
//
// A host owns a volume if it has made or found it, has it at an instance, or shares the pool that
// has it. It owns its instances, and instances without a host that it had last or that an operator
// asked it to take. It owns migrations that it runs or that pause one of its guests.
const (
	ownsVolume = `(v.host_id = ?1
		OR EXISTS (SELECT 1 FROM attachments oa JOIN instances oi ON oi.id = oa.instance_id WHERE oa.volume_id = v.id AND oi.host_id = ?1)
		OR EXISTS (SELECT 1 FROM locations ol JOIN pools op ON op.host_id = ?1 AND op.name = ol.pool AND op.shared = 1
			WHERE ol.volume_id = v.id AND ol.migration_id IS NULL AND ol.scope = 'shared'))`
	ownsInstance = `(i.host_id = ?1
		OR i.state = 'shelved_offloaded' AND i.id IN (SELECT instance_id FROM shelves WHERE asked_host_id = ?1))`
	ownsAttachment = "a.instance_id IN (SELECT id FROM instances WHERE host_id = ?1)"
	ownsMigration  = `(m.host_id = ?1
		OR EXISTS (SELECT 1 FROM pause_instances og WHERE og.migration_id = m.id AND og.host_id = ?1))`
)

var ownsQueries = map[Kind]string{
	KindVolume:     "SELECT EXISTS (SELECT 1 FROM volumes v WHERE v.id = ?2 AND " + ownsVolume + ")",
	KindInstance:   "SELECT EXISTS (SELECT 1 FROM instances i WHERE i.id = ?2 AND " + ownsInstance + ")",
	KindAttachment: "SELECT EXISTS (SELECT 1 FROM attachments a WHERE a.id = ?2 AND " + ownsAttachment + ")",
	KindMigration:  "SELECT EXISTS (SELECT 1 FROM migrations m WHERE m.id = ?2 AND " + ownsMigration + ")",
}

func owns(ctx context.Context, q ledger.Querier, k Kind, hostID, id string) (yes bool, err error) {
	if err := q.QueryRowContext(ctx, ownsQueries[k], hostID, id).Scan(&yes); err != nil {
		return false, fmt.Errorf("look up whose %s %s is: %w", k.Noun, id, err)
	}
	return yes, nil
}

func viewVisible[T any](ctx context.Context, db *DB, k Kind, ref string, viewer Viewer, byID func(context.Context, ledger.Querier, string) (T, error)) (T, error) {
	return ViewOne(ctx, db, k, ref, func(ctx context.Context, q ledger.Querier, id string) (none T, err error) {
		if viewer.HostID == "" {
			return byID(ctx, q, id)
		}
		yes, err := owns(ctx, q, k, viewer.HostID, id)
		if err != nil {
			return none, err
		}
		if !yes {
			return none, api.Errorf(api.CodeNotYourHost, "the %s %s is another host's", k.Noun, validate.Quote(ref))
		}
		return byID(ctx, q, id)
	})
}

func (v Viewer) visible(condition string) string {
	if v.HostID == "" {
		return "?1 = ''"
	}
	return condition
}

// CheckOwn refuses a host's change of an object that belongs to another host; verb names the
// change. Operators may change every object.
func (tx *Tx) CheckOwn(ctx context.Context, k Kind, id, verb, name string) error {
	if tx.host == nil {
		return nil
	}
	yes, err := owns(ctx, tx, k, tx.host.ID, id)
	if err != nil {
		return err
	}
	if !yes {
		return api.Errorf(api.CodeNotYourHost, "cannot %s %s %s: it is another host's, and you are host %s", verb, k.Noun, name, tx.host.Name)
	}
	return nil
}

func (tx *Tx) checkSelf(ctx context.Context, ref string) (string, error) {
	h, err := tx.resolveHost(ctx, ref)
	if err != nil {
		return "", err
	}
	if tx.host != nil && tx.host.ID != h.ID {
		return "", api.Errorf(api.CodeNotYourHost, "the request is about host %s and you are host %s", h.Name, tx.host.Name)
	}
	return h.ID, nil
}

// CheckOperator refuses a change by a host.
func (tx *Tx) CheckOperator(verb string) error {
	if tx.host == nil {
		return nil
	}
	return api.Errorf(api.CodePermissionDenied, "only an operator can %s, and you are host %s", verb, tx.host.Name)
}

// CheckHost returns the id of the host that ref names, and records epoch as the fencing token of
// the change. The host must not be fenced, and epoch must be its present epoch. A calling host may
// only name itself.
func (tx *Tx) CheckHost(ctx context.Context, ref string, epoch int64) (string, error) {
	h, err := tx.resolveHost(ctx, ref)
	if err != nil {
		return "", err
	}
	if tx.host != nil && tx.host.ID != h.ID {
		return "", api.Errorf(api.CodeNotYourHost, "the request is of host %s and you are host %s", h.Name, tx.host.Name)
	}
	return h.ID, tx.admitEpoch(h, epoch)
}

func (tx *Tx) admitEpoch(host hostcache.Row, epoch int64) error {
	if host.Fenced || host.Epoch != epoch {
		return staleEpoch(host, epoch)
	}
	tx.Epoch = epoch
	return nil
}

func staleEpoch(host hostcache.Row, epoch int64) error {
	if host.Fenced && host.Epoch == epoch {
		return api.Errorf(api.CodeStaleEpoch, "host %s is fenced in epoch %d; it must let go of what it lost and rejoin", host.Name, host.Epoch).
			With("epoch", host.Epoch)
	}
	why := "it was fenced meanwhile, or the registry was restored"
	if epoch > host.Epoch {
		why = "the registry never gave that out, so its database may be older than the host"
	}
	return api.Errorf(api.CodeStaleEpoch, "host %s is in epoch %d and the request is of epoch %d: %s", host.Name, host.Epoch, epoch, why).
		With("epoch", host.Epoch)
}

func notYourHost(verb, name string) error {
	return api.Errorf(api.CodeNotYourHost, "cannot %s host %s: that is not the host that you are", verb, name)
}
