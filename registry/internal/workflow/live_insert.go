// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
)

const (
	// defaultMaxPause is the longest pause of the guests if the operator does not set one.
	defaultMaxPause = 30 * time.Second
	// LivePauseBase is the part of a pause besides copying, and saving and restoring RAM.
	LivePauseBase = 2 * time.Second
)

// insertLive stores a live move. asked is the longest pause that the operator allows, 0 for the
// default.
func (tx *changeTx) insertLive(ctx context.Context, v api.Volume, id string, guests []PauseInstance, asked time.Duration) error {
	unit := api.LiveUnitBytes(v.SizeBytes)
	maxPause := cmp.Or(asked, defaultMaxPause)
	if err := tx.Exec(ctx, "INSERT INTO live_moves (migration_id, unit_bytes, max_pause_ms) VALUES (?, ?, ?)", id, unit, maxPause.Milliseconds()); err != nil {
		return err
	}
	hosts := []string{}
	for _, g := range guests {
		if !slices.Contains(hosts, g.Host.ID) {
			hosts = append(hosts, g.Host.ID)
		}
	}
	from := int64(0)
	for n, until := range shares(v.SizeBytes, unit, len(hosts)) {
		if err := tx.Exec(ctx, "INSERT INTO live_hosts (migration_id, host_id, from_bytes, until_bytes) VALUES (?, ?, ?, ?)", id, hosts[n], from, until); err != nil {
			return err
		}
		from = until
	}
	return nil
}
