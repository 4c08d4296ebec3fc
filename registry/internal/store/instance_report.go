// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

type reportTx struct{ *Tx }

type reported struct {
	id, note          string
	state, standstill api.InstanceState
	// differs means that its disks are not at the locations of its volumes.
	differs bool
	// own means that the host has it now. The host of a shelved_offloaded instance only had it
	// last.
	own bool
}

// storeInstances stores the reported instances. It returns the running instances that the host
// does not have. An unchanged report costs one query.
func (tx reportTx) storeInstances(ctx context.Context, in api.HostReport) (foreign []string, err error) {
	scan := ledger.ScanInto(func(r *reported) []any { return []any{&r.id, &r.note, &r.state, &r.standstill, &r.differs, &r.own} })
	rows, err := ledger.QueryAll(ctx, tx, scan, "SELECT i.id, i.note, i.state, i.standstill, i.differs, "+instanceHostID+" = ?1 FROM instances i WHERE i.host_id = ?1", in.ID)
	if err != nil {
		return nil, err
	}
	known := make(map[string]reported, len(rows))
	for _, r := range rows {
		known[r.id] = r
	}
	for _, i := range in.Instances {
		was, had := known[i.ID]
		if had {
			if err := tx.storeInstance(ctx, was, i); err != nil {
				return nil, err
			}
		}
		if !was.own && (i.State == api.InstanceRunning || i.State == api.InstancePaused) {
			foreign = append(foreign, i.ID)
		}
	}
	return foreign, nil
}

// storeInstance stores a reported instance. A report never shelves or unshelves an instance.
func (tx reportTx) storeInstance(ctx context.Context, was reported, i api.InstanceReport) error {
	if was.state == api.InstanceShelvedOffloaded {
		return nil
	}
	state := i.State
	if was.state.OnShelf() || state.OnShelf() {
		state = was.state
	}
	if state == was.state && i.Standstill == was.standstill && i.Note == was.note && i.Differs == was.differs {
		return nil
	}
	if state == api.InstanceRunning && was.state != state {
		if err := tx.noteRanOn(ctx, i.ID); err != nil {
			return err
		}
	}
	return tx.Exec(ctx, "UPDATE instances SET state = ?, standstill = ?, note = ?, differs = ?, updated_us = ? WHERE id = ?", state, i.Standstill, i.Note, i.Differs, tx.At.UnixMicro(), i.ID)
}

// noteRanOn records that another program has resumed a guest of a move that has resumed no guest
// yet: the saved memory of the other guests is older than its writes (workflow.Pauses.Permit).
func (tx reportTx) noteRanOn(ctx context.Context, instanceID string) error {
	type resting struct {
		migration, state, phase, name, host string
		stopped                             int64
	}
	scan := ledger.ScanInto(func(r *resting) []any { return []any{&r.migration, &r.state, &r.phase, &r.stopped, &r.name, &r.host} })
	found, err := ledger.QueryAll(ctx, tx, scan, `SELECT g.migration_id, g.state, p.phase, p.stopped_us, i.name, h.name
		FROM pause_instances g JOIN pauses p ON p.migration_id = g.migration_id
		JOIN instances i ON i.id = g.instance_id JOIN hosts h ON h.id = g.host_id
		WHERE g.instance_id = ? AND g.state IN ('suspended', 'saved', 'ready') AND g.ran_us = 0 AND p.resuming = 0 AND p.phase <> 'done'`, instanceID)
	if err != nil {
		return err
	}
	for _, r := range found {
		m, err := MigrationByID(ctx, tx, r.migration)
		if err != nil {
			return err
		}
		// An adopted move has no stop time of its guests; assume long ago.
		ran := max(r.stopped, 1)
		if err := tx.Exec(ctx, "UPDATE pause_instances SET ran_us = ? WHERE migration_id = ? AND instance_id = ?", ran, m.ID, instanceID); err != nil {
			return fmt.Errorf("note that an instance has run on: %w", err)
		}
		if err := tx.AuditMigration(ctx, m, api.Event{What: "migration.instance", From: r.state, To: string(api.InstanceRunning)}, map[string]any{
			"instance_id": instanceID, "instance_name": r.name, "instance_host": r.host, "phase": r.phase,
			"reason": "its host reports that it runs, and the move has not let it run on",
		}); err != nil {
			return err
		}
	}
	return nil
}

// RunningElsewhere returns the instances, as "NAME of host HOST", that run with disks at other
// locations than their volumes', by their hosts' last reports. It omits instances with a volume in
// migration, which may be at either location.
func (s *Instances) RunningElsewhere(ctx context.Context) ([]string, error) {
	scan := ledger.ScanInto(func(text *string) []any { return []any{text} })
	return ledger.QueryAll(ctx, s.db.Reader(), scan, `SELECT i.name || ' of host ' || h.name FROM instances i JOIN hosts h ON h.id = i.host_id
		WHERE i.differs = 1 AND i.state IN ('running', 'paused') AND NOT EXISTS (
			SELECT 1 FROM attachments a JOIN migrations m ON m.volume_id = a.volume_id
			WHERE a.instance_id = i.id AND m.state NOT IN ('completed', 'cancelled', 'error')) ORDER BY i.name, i.id`)
}
