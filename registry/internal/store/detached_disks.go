// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// keepDetached keeps what a volume was at an instance from which it is taken; nil
// leaves what is kept.
func (tx *Tx) keepDetached(ctx context.Context, h heldAttachment, d *api.SlotDefinition) error {
	if d == nil {
		return nil
	}
	text, err := encodeSlot(d)
	if err != nil {
		return err
	}
	return tx.Exec(ctx, `INSERT INTO detached_disks (instance_id, volume_id, device, definition) VALUES (?1, ?2, ?3, ?4)
		ON CONFLICT (instance_id, volume_id) DO UPDATE SET device = ?3, definition = ?4`, h.InstanceID, h.VolumeID, h.Device, text)
}

// detachedDisks are what is kept of the volumes that were detached from an instance,
// without those that it has again.
func detachedDisks(ctx context.Context, q ledger.Querier, instanceID string) ([]api.DetachedDisk, error) {
	return ledger.QueryAll(ctx, q, func(row ledger.Scanner) (d api.DetachedDisk, err error) {
		var text string
		if err := row.Scan(&d.VolumeID, &d.Device, &text); err != nil {
			return d, err
		}
		slot, err := decodeSlot(text)
		if slot != nil {
			d.Slot = *slot
		}
		return d, err
	}, `SELECT volume_id, device, definition FROM detached_disks d WHERE instance_id = ?
		AND NOT EXISTS (SELECT 1 FROM attachments a WHERE a.volume_id = d.volume_id AND a.instance_id = d.instance_id AND a.state <> 'reserved')
		ORDER BY device, volume_id`, instanceID)
}
