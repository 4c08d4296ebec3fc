// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/hostcache"
	"github.com/volferry/volferry/registry/internal/ledger"
)

const hostQuery = "SELECT id, name, version, boot_id, epoch, fenced, behind, last_seen_us, created_us FROM hosts"

func scanHostRow(row ledger.Scanner) (hostcache.Row, error) {
	var (
		h             hostcache.Row
		seen, created int64
	)
	err := row.Scan(&h.ID, &h.Name, &h.Version, &h.BootID, &h.Epoch, &h.Fenced, &h.Behind, &seen, &created)
	h.LastSeen, h.Created = ledger.FromMicros(seen), ledger.FromMicros(created)
	return h, err
}

func (tx *Tx) hostRow(ctx context.Context, id string) (hostcache.Row, error) {
	if h, ok := tx.cache.hosts.byID[id]; ok {
		return h, nil
	}
	h, err := scanHostRow(tx.QueryRowContext(ctx, hostQuery+" WHERE id = ?", id))
	if err != nil {
		return h, fmt.Errorf("read host %s: %w", id, err)
	}
	tx.cache.hosts.byID[h.ID], tx.cache.hosts.byName[h.Name] = h, h
	return h, nil
}

func (tx *Tx) hostsBehind(ctx context.Context) ([]hostcache.Row, error) {
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

func (tx *Tx) resolveHost(ctx context.Context, ref string) (hostcache.Row, error) {
	if h, ok := tx.cache.hosts.byID[ref]; ok {
		return h, nil
	}
	if h, ok := tx.cache.hosts.byName[ref]; ok && !api.MayBeginID(ref) {
		return h, nil
	}
	id, err := Resolve(ctx, tx, KindHost, ref)
	if err != nil {
		return hostcache.Row{}, err
	}
	return tx.hostRow(ctx, id)
}

// HostNamed returns the id and the name of the host that ref names.
func (tx *Tx) HostNamed(ctx context.Context, ref string) (id, name string, err error) {
	h, err := tx.resolveHost(ctx, ref)
	return h.ID, h.Name, err
}

// checkFenced requires a valid fence. A fence in a database restored from a backup is not valid:
// the host may have rejoined after the backup.
func checkFenced(h hostcache.Row, verb string) error {
	switch {
	case !h.Fenced:
		return api.Errorf(api.CodeStateForbidden, "cannot %s: host %s is not fenced and the guest may have the disk; detach it there, or fence the host first", verb, h.Name)
	case h.Behind:
		return api.Errorf(api.CodeStateForbidden, "cannot %s: host %s was fenced before the registry was restored from a backup, and may have come back in the history that was lost; "+
			"fence it once more if it cannot touch the volume now", verb, h.Name)
	}
	return nil
}
