// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// encodeSlot and decodeSlot are what is stored of a slot's definition: "" for nil.
func encodeSlot(d *api.SlotDefinition) (string, error) {
	if d == nil {
		return "", nil
	}
	b, err := json.Marshal(d)
	if err != nil {
		return "", fmt.Errorf("encode definition of slot: %w", err)
	}
	return string(b), nil
}

func decodeSlot(text string) (*api.SlotDefinition, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // nothing is known of it
	}
	d := new(api.SlotDefinition)
	if err := json.Unmarshal([]byte(text), d); err != nil {
		return nil, fmt.Errorf("decode definition of slot: %w", err)
	}
	return d, nil
}

// SlotDefinitions are the definitions that the slots of an instance keep, by device.
func SlotDefinitions(ctx context.Context, q ledger.Querier, instanceID string) (map[string]api.SlotDefinition, error) {
	type kept struct{ device, definition string }
	slots, err := ledger.QueryAll(ctx, q, func(row ledger.Scanner) (k kept, err error) {
		err = row.Scan(&k.device, &k.definition)
		return k, err
	}, "SELECT device, definition FROM slots WHERE instance_id = ? AND definition <> ''", instanceID)
	if err != nil {
		return nil, err
	}
	out := make(map[string]api.SlotDefinition, len(slots))
	for _, s := range slots {
		d, err := decodeSlot(s.definition)
		if err != nil {
			return nil, err
		}
		out[s.device] = *d
	}
	return out, nil
}

// storeSlot keeps with a slot what is known of it; nil leaves what is kept.
func (tx *Tx) storeSlot(ctx context.Context, instanceID, device string, d *api.SlotDefinition) error {
	if d == nil {
		return nil
	}
	text, err := encodeSlot(d)
	if err != nil {
		return err
	}
	return tx.Exec(ctx, "UPDATE slots SET definition = ? WHERE instance_id = ? AND device = ?", text, instanceID, device)
}

// storeDetachedDisk keeps what a volume was at an instance from which it is taken; nil
// leaves what is kept.
func (tx *Tx) storeDetachedDisk(ctx context.Context, h attachmentRow, d *api.SlotDefinition) error {
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
