// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// hostRow is a host as it is stored.
type hostRow struct {
	id, name, version, bootID string
	epoch                     int64
	fenced                    bool
	lastSeen, created         time.Time
}

const hostQuery = "SELECT id, name, version, boot_id, epoch, fenced, last_seen_us, created_us FROM hosts"

func scanHostRow(row scanner) (hostRow, error) {
	var (
		h             hostRow
		seen, created int64
	)
	err := row.Scan(&h.id, &h.name, &h.version, &h.bootID, &h.epoch, &h.fenced, &seen, &created)
	h.lastSeen, h.created = fromMicros(seen), fromMicros(created)
	return h, err
}

// hostCache holds rows of hosts for the writer, which looks at one in almost
// every change. Whoever changes a row has it emptied, and so does whatever undoes
// a change.
type hostCache struct {
	byID   map[string]hostRow
	byName map[string]hostRow
}

func newHostCache() *hostCache {
	return &hostCache{byID: map[string]hostRow{}, byName: map[string]hostRow{}}
}

func (c *hostCache) empty() {
	clear(c.byID)
	clear(c.byName)
}

// forgetHosts is called before a change of a host.
func (t *writeTx) forgetHosts() {
	t.hosts.empty()
	t.hostsChanged = true
}

// hostRow returns the host with the id, sql.ErrNoRows if there is none.
func (t *writeTx) hostRow(ctx context.Context, id string) (hostRow, error) {
	if h, ok := t.hosts.byID[id]; ok {
		return h, nil
	}
	h, err := scanHostRow(t.QueryRowContext(ctx, hostQuery+" WHERE id = ?", id))
	if err != nil {
		return h, fmt.Errorf("read host %s: %w", id, err)
	}
	t.hosts.byID[h.id], t.hosts.byName[h.name] = h, h
	return h, nil
}

// resolveHost returns the host that ref names.
func (tx *changeTx) resolveHost(ctx context.Context, ref string) (hostRow, error) {
	if h, ok := tx.hosts.byID[ref]; ok {
		return h, nil
	}
	if h, ok := tx.hosts.byName[ref]; ok {
		return h, nil
	}
	id, err := resolve(ctx, tx, kindHost, ref)
	if err != nil {
		return hostRow{}, err
	}
	return tx.hostRow(ctx, id)
}

// checkHost returns the id of the host that ref names, if it is not fenced and
// epoch is its epoch, and notes that as the token of the change. A host may only
// name itself.
func (tx *changeTx) checkHost(ctx context.Context, ref string, epoch int64) (string, error) {
	h, err := tx.resolveHost(ctx, ref)
	if err != nil {
		return "", err
	}
	if tx.host != nil && tx.host.id != h.id {
		return "", api.Errorf(api.CodeNotYourHost, "the request is of host %s and you are host %s", h.name, tx.host.name)
	}
	return h.id, tx.admitEpoch(h, epoch)
}
