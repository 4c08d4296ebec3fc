// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

// maxSlotDefinition bounds the definition of a disk: one is a few hundred bytes.
const maxSlotDefinition = 64 << 10

func checkSlotDefinition(device string, d api.SlotDefinition) error {
	return checkDocument("definition of the disk "+device, d.Disk, maxSlotDefinition)
}

// checkDocument checks a text in the hypervisor's words, which is kept as it is.
func checkDocument(what, text string, most int) error {
	switch {
	case text == "":
		return validate.Invalid("the %s is missing", what)
	case len(text) > most:
		return validate.Invalid("the %s has %d bytes, and at most %d are kept", what, len(text), most)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return validate.Invalid("the %s is not text in UTF-8", what)
	}
	return nil
}

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
