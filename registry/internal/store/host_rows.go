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
	// behind is a host that has not come back since a restore was accepted.
	behind            bool
	lastSeen, created time.Time
}

const hostQuery = "SELECT id, name, version, boot_id, epoch, fenced, behind, last_seen_us, created_us FROM hosts"

func scanHostRow(row scanner) (hostRow, error) {
	var (
		h             hostRow
		seen, created int64
	)
	err := row.Scan(&h.id, &h.name, &h.version, &h.bootID, &h.epoch, &h.fenced, &h.behind, &seen, &created)
	h.lastSeen, h.created = fromMicros(seen), fromMicros(created)
	return h, err
}

// hostCache holds rows of hosts for the writer, which looks at one in almost
// every change. Whoever changes a row has it emptied, and so does whatever undoes
// a change.
type hostCache struct {
	byID   map[string]hostRow
	byName map[string]hostRow
	// behind are the hosts that are behind, once they were looked up.
	behind      []hostRow
	behindKnown bool
}

func newHostCache() *hostCache {
	return &hostCache{byID: map[string]hostRow{}, byName: map[string]hostRow{}}
}

func (c *hostCache) empty() {
	clear(c.byID)
	clear(c.byName)
	c.behind, c.behindKnown = nil, false
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

// hostsBehind returns the hosts that are behind, by name.
func (t *writeTx) hostsBehind(ctx context.Context) ([]hostRow, error) {
	if t.hosts.behindKnown {
		return t.hosts.behind, nil
	}
	behind, err := queryAll(ctx, t, scanHostRow, hostQuery+" WHERE behind = 1 ORDER BY name")
	if err != nil {
		return nil, err
	}
	t.hosts.behind, t.hosts.behindKnown = behind, true
	return behind, nil
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
