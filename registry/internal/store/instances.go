// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
)

// Instances has the instances, with their slots and locks.
type Instances struct{ db *DB }

// Each visits the instances after a key. A host sees only its own instances.
func (s *Instances) Each(ctx context.Context, viewer Viewer, after string, do ledger.Visit[api.Instance]) error {
	return s.db.view(ctx, func(q ledger.Querier) error {
		read := func(after string) ([]api.Instance, bool, error) { return s.after(ctx, q, viewer, after) }
		return ledger.InChunks(after, func(i *api.Instance) string { return i.ID }, read, do)
	})
}

func (s *Instances) after(ctx context.Context, q ledger.Querier, viewer Viewer, after string) (instances []api.Instance, more bool, err error) {
	instances, err = ledger.QueryAll(ctx, q, scanInstance, viewer.instancesQuery(), viewer.HostID, after, ledger.ChunkRows)
	if err != nil || len(instances) == 0 {
		return nil, false, err
	}
	last := instances[len(instances)-1].ID
	slots, err := ledger.QueryAll(ctx, q, scanSlot, viewer.slotsQuery(), viewer.HostID, after, last)
	if err != nil {
		return nil, false, err
	}
	of := map[string][]api.BlockDeviceMapping{}
	for _, s := range slots {
		of[s.instanceID] = append(of[s.instanceID], s.BlockDeviceMapping)
	}
	for n := range instances {
		instances[n].BlockDeviceMappings = append(instances[n].BlockDeviceMappings, of[instances[n].ID]...)
		s.noteSplitBrain(&instances[n])
	}
	return instances, len(instances) == ledger.ChunkRows, nil
}

func (v Viewer) instancesQuery() string {
	return instanceQuery + " WHERE i.id > ?2 AND " + v.visible(ownsInstance) + " ORDER BY i.id LIMIT ?3"
}

func (v Viewer) slotsQuery() string {
	return slotQuery + " JOIN instances i ON i.id = s.instance_id WHERE s.instance_id > ?2 AND s.instance_id <= ?3 AND " + v.visible(ownsInstance) + slotOrder
}

// All returns every instance, by name, as Each visits them.
func (s *Instances) All(ctx context.Context, viewer Viewer) ([]api.Instance, error) {
	all, err := gather(func(do ledger.Visit[api.Instance]) error { return s.Each(ctx, viewer, "", do) })
	slices.SortFunc(all, func(a, b api.Instance) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return all, err
}

// Get returns the instance that ref names.
func (s *Instances) Get(ctx context.Context, ref string, viewer Viewer) (api.Instance, error) {
	i, err := viewVisible(ctx, s.db, KindInstance, ref, viewer, InstanceByID)
	if err == nil {
		s.noteSplitBrain(&i)
	}
	return i, err
}

// The name and the id of the host of instance i; h is the row of the host. A shelved_offloaded
// instance has no host; its row keeps the last one.
const (
	instanceHost   = "CASE i.state WHEN 'shelved_offloaded' THEN '' ELSE h.name END"
	instanceHostID = "CASE i.state WHEN 'shelved_offloaded' THEN '' ELSE i.host_id END"
)

const shownState = "CASE WHEN i.state = 'paused' AND i.standstill <> '' THEN i.standstill ELSE i.state END"

const instanceQuery = "SELECT i.id, i.name, " + instanceHost + ", " + shownState + `, i.lock_reason, i.lock_op, i.note, i.differs, i.created_us, i.updated_us
	FROM instances i JOIN hosts h ON h.id = i.host_id`

const slotQuery = `SELECT s.instance_id, s.device, s.boot_index, s.note, s.definition, a.volume_id, a.id, COALESCE(a.mode, '')
	FROM slots s LEFT JOIN attachments a ON a.instance_id = s.instance_id AND a.device = s.device AND a.migration_id IS NULL`

const slotOrder = " ORDER BY s.instance_id, s.device"

// InstanceByID returns the instance with the id and its slots, or sql.ErrNoRows.
func InstanceByID(ctx context.Context, q ledger.Querier, id string) (api.Instance, error) {
	i, err := scanInstance(q.QueryRowContext(ctx, instanceQuery+" WHERE i.id = ?", id))
	if err != nil {
		return i, fmt.Errorf("read instance %s: %w", id, err)
	}
	slots, err := ledger.QueryAll(ctx, q, scanSlot, slotQuery+" WHERE s.instance_id = ?"+slotOrder, id)
	for _, s := range slots {
		i.BlockDeviceMappings = append(i.BlockDeviceMappings, s.BlockDeviceMapping)
	}
	if err == nil {
		i.DetachedDisks, err = detachedDisks(ctx, q, id)
	}
	return i, err
}

func scanInstance(row ledger.Scanner) (api.Instance, error) {
	var (
		i                api.Instance
		created, updated int64
	)
	err := row.Scan(&i.ID, &i.Name, &i.Host, &i.State, &i.LockReason, &i.LockedBy, &i.Note, &i.Differs, &created, &updated)
	i.Locked = i.LockReason != ""
	i.BlockDeviceMappings = []api.BlockDeviceMapping{}
	i.CreatedAt, i.UpdatedAt = ledger.FromMicros(created), ledger.FromMicros(updated)
	return i, err
}

type slot struct {
	instanceID string
	api.BlockDeviceMapping
}

func scanSlot(row ledger.Scanner) (slot, error) {
	var (
		s          slot
		definition string
	)
	err := row.Scan(&s.instanceID, &s.Device, &s.BootIndex, &s.Note, &definition, &s.VolumeID, &s.AttachmentID, &s.Mode)
	if err == nil && s.AttachmentID == nil {
		s.Slot, err = decodeSlot(definition)
	}
	return s, err
}

// CheckNoSplitBrain refuses a change of an instance, named by verb, while the instance runs on a
// host other than its own, hostID ("" if no host has it): a change that frees the instance's
// volumes or changes its disks would cause two writers.
func (tx *Tx) CheckNoSplitBrain(verb, instanceID, hostID string) error {
	other := tx.hosts.SplitBrain(instanceID, hostID)
	if other == "" {
		return nil
	}
	return api.Errorf(api.CodeStateForbidden, "cannot %s: the instance runs on host %s, which does not have it; shut it down there, or fence that host", verb, other).
		With("host", other)
}

// noteSplitBrain sets the note of an instance that runs on a host that does not have it. It
// replaces the note of the instance's own host.
func (s *Instances) noteSplitBrain(i *api.Instance) {
	if other := s.db.hosts.SplitBrain(i.ID, i.Host); other != "" {
		i.Note = "it runs on host " + other + ", which does not have it"
	}
}

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
		return nil, nil //nolint:nilnil // the slot has no definition
	}
	d := new(api.SlotDefinition)
	if err := json.Unmarshal([]byte(text), d); err != nil {
		return nil, fmt.Errorf("decode definition of slot: %w", err)
	}
	return d, nil
}

// SlotDefinitions returns the stored definitions of an instance's slots, by device.
func SlotDefinitions(ctx context.Context, q ledger.Querier, instanceID string) (map[string]api.SlotDefinition, error) {
	type kept struct{ device, definition string }
	scan := ledger.ScanInto(func(k *kept) []any { return []any{&k.device, &k.definition} })
	slots, err := ledger.QueryAll(ctx, q, scan, "SELECT device, definition FROM slots WHERE instance_id = ? AND definition <> ''", instanceID)
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

// detachedDisks returns the stored definitions of volumes that were detached from an instance,
// except volumes that are attached to it again.
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
