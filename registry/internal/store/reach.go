// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// reachedBy returns the SQL condition that host h reaches the bytes of volume v at location l: h
// is the volume's own host, or also has the shared pool of the location. The arguments are aliases
// of tables.
func reachedBy(h, v, l string) string {
	return fmt.Sprintf(`(%[3]s.scope = %[1]s.id OR %[3]s.scope = 'shared' AND (%[2]s.host_id = %[1]s.id
		OR EXISTS (SELECT 1 FROM pools rp WHERE rp.host_id = %[1]s.id AND rp.name = %[3]s.pool AND rp.shared = 1)
			AND %[4]s))`, h, v, l, basesReachedBy(h+".id", v+".host_id", l+".backing"))
}

// moverQuery selects the hosts that reach volume ?1, each with two values: whether it has pool ?2
// (true for "", a move to a path), and the number of other volumes of the volume's instances that
// it does not reach. It prefers, in this order, hosts that are not fenced, hosts with active
// pools, hosts that last had such an instance, and the volume's own host.
var moverQuery = `SELECT h.id, ?2 = '' OR EXISTS (SELECT 1 FROM pools p WHERE p.host_id = h.id AND p.name = ?2),
		(SELECT COUNT(*) FROM attachments a
			JOIN attachments oa ON oa.instance_id = a.instance_id AND oa.volume_id <> a.volume_id
			JOIN volumes ov ON ov.id = oa.volume_id
			JOIN locations ol ON ol.volume_id = ov.id AND ol.migration_id IS NULL
			WHERE a.volume_id = v.id AND NOT ` + reachedBy("h", "ov", "ol") + `)
	FROM volumes v
	JOIN locations l ON l.volume_id = v.id AND l.migration_id IS NULL
	JOIN hosts h ON ` + reachedBy("h", "v", "l") + `
	WHERE v.id = ?1
	ORDER BY h.fenced, (SELECT COUNT(*) FROM pools p WHERE p.host_id = h.id AND p.active = 1 AND p.name IN (l.pool, ?2)) DESC,
		EXISTS (SELECT 1 FROM attachments a JOIN instances i ON i.id = a.instance_id WHERE a.volume_id = v.id AND i.host_id = h.id) DESC,
		h.id = v.host_id DESC, h.name`

type mover struct {
	hostID    string
	hasPool   bool
	unreached int // other volumes of its instances that the host does not reach
}

// Movers returns the ids of the hosts that can move an unheld volume to a pool, or to a path if
// toPool is empty, best first. These hosts reach both locations, and as many as possible of the
// other volumes of the volume's instances: otherwise no host might be able to unshelve an
// instance.
func (s *Volumes) Movers(ctx context.Context, volumeID, toPool string) ([]string, error) {
	return ledger.View(ctx, s.db.sqlite.Read, func(q ledger.Querier) ([]string, error) {
		scan := ledger.ScanInto(func(m *mover) []any { return []any{&m.hostID, &m.hasPool, &m.unreached} })
		reach, err := ledger.QueryAll(ctx, q, scan, moverQuery, volumeID, toPool)
		if err != nil {
			return nil, err
		}
		both := slices.DeleteFunc(slices.Clone(reach), func(m mover) bool { return !m.hasPool })
		if len(both) == 0 {
			return noEligibleHost(ctx, q, volumeID, toPool, reach)
		}
		least := slices.MinFunc(both, func(a, b mover) int { return a.unreached - b.unreached }).unreached
		return hostsOf(slices.DeleteFunc(both, func(m mover) bool { return m.unreached > least })), nil
	})
}

// noEligibleHost refuses a pool if no host reaches both it and the volume. If no host has reported
// the pool, it returns the hosts that reach the volume: they may know the pool.
func noEligibleHost(ctx context.Context, q ledger.Querier, volumeID, toPool string, reach []mover) ([]string, error) {
	if api.CodeOf(CheckPoolKnown(ctx, q, toPool)) == api.CodeNotFound && len(reach) > 0 {
		return hostsOf(reach), nil
	}
	v, err := volumeByID(ctx, q, volumeID)
	if err != nil {
		return nil, err
	}
	return nil, api.Errorf(api.CodeUnsupportedDisk, "cannot migrate volume %s to pool %s: no host reaches both that pool and %s", v.Name, toPool, Place(v.Location))
}

func hostsOf(movers []mover) []string {
	ids := make([]string, len(movers))
	for i, m := range movers {
		ids[i] = m.hostID
	}
	return ids
}

func (tx *Tx) checkReach(ctx context.Context, verb string, v api.Volume, hostID string) error {
	var scope, owner string
	if err := tx.QueryRowContext(ctx, `SELECT l.scope, v.host_id FROM volumes v
		JOIN locations l ON l.volume_id = v.id AND l.migration_id IS NULL WHERE v.id = ?`, v.ID).Scan(&scope, &owner); err != nil {
		return fmt.Errorf("read host of volume: %w", err)
	}
	yes, err := Reaches(ctx, tx, hostID, owner, scope, v.Location)
	switch {
	case err != nil:
		return err
	case yes:
		return tx.CheckNotBehind(ctx, verb, v.Name, v.Location, hostID)
	case scope == scopeShared && v.Location.Backing != "":
		return api.Errorf(api.CodeNotYourHost, "cannot %s volume %s from this host: it is on host %s, and this host does not reach it with all its base images", verb, v.Name, v.Host)
	}
	return api.Errorf(api.CodeNotYourHost, "cannot %s volume %s from this host: it is on host %s", verb, v.Name, v.Host)
}
