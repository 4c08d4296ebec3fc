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
	// defaultMaxPause is how long the guests may stand still where nobody says otherwise.
	defaultMaxPause = 30 * time.Second
	// LivePauseBase is what a pause takes besides the copying, and the saving and restoring of RAM.
	LivePauseBase = 2 * time.Second
)

// insertLive adds to a move what it needs if the guests write meanwhile. Asked is how long they may
// stand still, 0 if nobody said.
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
