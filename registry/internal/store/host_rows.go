// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// hostRow is a host as it is stored.
type hostRow struct {
	id, name, version, bootID string
	epoch                     int64
	fenced                    bool
	// behind is a host that has not come back since a restore was accepted.
	behind            bool
	lastSeen, created time.Time
}

const hostQuery = "SELECT id, name, version, boot_id, epoch, fenced, behind, last_seen_us, created_us FROM hosts"

func scanHostRow(row ledger.Scanner) (hostRow, error) {
	var (
		h             hostRow
		seen, created int64
	)
	err := row.Scan(&h.id, &h.name, &h.version, &h.bootID, &h.epoch, &h.fenced, &h.behind, &seen, &created)
	h.lastSeen, h.created = ledger.FromMicros(seen), ledger.FromMicros(created)
	return h, err
}

// hostRow returns the host with the id, sql.ErrNoRows if there is none.
func (tx *Tx) hostRow(ctx context.Context, id string) (hostRow, error) {
	if h, ok := tx.cache.hosts.byID[id]; ok {
		return h, nil
	}
	h, err := scanHostRow(tx.QueryRowContext(ctx, hostQuery+" WHERE id = ?", id))
	if err != nil {
		return h, fmt.Errorf("read host %s: %w", id, err)
	}
	tx.cache.hosts.byID[h.id], tx.cache.hosts.byName[h.name] = h, h
	return h, nil
}

// hostsBehind returns the hosts that are behind, by name.
func (tx *Tx) hostsBehind(ctx context.Context) ([]hostRow, error) {
	if tx.cache.hosts.behindKnown {
		return tx.cache.hosts.behind, nil
	}
	behind, err := ledger.QueryAll(ctx, tx, scanHostRow, hostQuery+" WHERE behind = 1 ORDER BY name")
	if err != nil {
		return nil, err
	}
	tx.cache.hosts.behind, tx.cache.hosts.behindKnown = behind, true
	return behind, nil
}

// resolveHost returns the host that ref names.
func (tx *Tx) resolveHost(ctx context.Context, ref string) (hostRow, error) {
	if h, ok := tx.cache.hosts.byID[ref]; ok {
		return h, nil
	}
	if h, ok := tx.cache.hosts.byName[ref]; ok {
		return h, nil
	}
	id, err := Resolve(ctx, tx, KindHost, ref)
	if err != nil {
		return hostRow{}, err
	}
	return tx.hostRow(ctx, id)
}

// HostNamed returns id and name of the host that ref names.
func (tx *Tx) HostNamed(ctx context.Context, ref string) (id, name string, err error) {
	h, err := tx.resolveHost(ctx, ref)
	return h.id, h.name, err
}

// CheckHost returns the id of the host that ref names, if it is not fenced and
// epoch is its epoch, and notes that as the token of the change. A host may only
// name itself.
func (tx *Tx) CheckHost(ctx context.Context, ref string, epoch int64) (string, error) {
	h, err := tx.resolveHost(ctx, ref)
	if err != nil {
		return "", err
	}
	if tx.host != nil && tx.host.id != h.id {
		return "", api.Errorf(api.CodeNotYourHost, "the request is of host %s and you are host %s", h.name, tx.host.name)
	}
	return h.id, tx.admitEpoch(h, epoch)
}
