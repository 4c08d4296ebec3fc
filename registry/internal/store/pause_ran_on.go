// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// noteRanOn takes the word of a host that an instance runs, which did not when the host
// reported before. Where a move with all guests paused has put it to rest and lets
// none run on yet, somebody has resumed it by hand: the memory of the others is older
// than what it writes (PermitPause). A report is never of before the one that came
// earlier, so this is not the state in which the move found the instance.
func (tx *changeTx) noteRanOn(ctx context.Context, instanceID string) error {
	ids, err := ledger.QueryAll(ctx, tx, ledger.ScanString, `SELECT g.migration_id FROM pause_instances g JOIN pauses p ON p.migration_id = g.migration_id
		WHERE g.instance_id = ? AND g.state IN ('suspended', 'saved', 'ready') AND g.ran_us = 0 AND p.resuming = 0 AND p.phase <> 'done'`, instanceID)
	if err != nil {
		return err
	}
	for _, id := range ids {
		p, err := pauseByID(ctx, tx, id)
		if err != nil {
			return err
		}
		if err := tx.Exec(ctx, "UPDATE pause_instances SET ran_us = ? WHERE migration_id = ? AND instance_id = ?", p.StoppedAt.UnixMicro(), id, instanceID); err != nil {
			return fmt.Errorf("note that an instance has run on: %w", err)
		}
		for _, g := range p.Instances {
			if g.ID != instanceID {
				continue
			}
			if err := tx.auditMigration(ctx, p.Migration, api.Event{What: "migration.instance", From: g.State, To: string(api.InstanceRunning)}, map[string]any{
				"instance_id": g.ID, "instance_name": g.Name, "instance_host": g.Host.Name, "phase": p.Phase,
				"reason": "its host reports that it runs, and the move has not let it run on",
			}); err != nil {
				return err
			}
		}
	}
	return nil
}
