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

// EachInstance visits the instances after a key. A host sees only its own.
func (s *Store) EachInstance(ctx context.Context, viewer Viewer, after string, do ledger.Visit[api.Instance]) error {
	return s.view(ctx, func(q ledger.Querier) error {
		read := func(after string) ([]api.Instance, bool, error) { return s.instancesAfter(ctx, q, viewer, after) }
		return ledger.InChunks(after, func(i *api.Instance) string { return i.ID }, read, do)
	})
}

func (s *Store) instancesAfter(ctx context.Context, q ledger.Querier, viewer Viewer, after string) (instances []api.Instance, more bool, err error) {
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

// Instances returns every instance, by name, as EachInstance visits them.
func (s *Store) Instances(ctx context.Context, viewer Viewer) ([]api.Instance, error) {
	all, err := gather(func(do ledger.Visit[api.Instance]) error { return s.EachInstance(ctx, viewer, "", do) })
	slices.SortFunc(all, func(a, b api.Instance) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return all, err
}

// Instance returns the instance that ref names.
func (s *Store) Instance(ctx context.Context, ref string, viewer Viewer) (api.Instance, error) {
	i, err := viewVisible(ctx, s, KindInstance, ref, viewer, InstanceByID)
	if err == nil {
		s.noteSplitBrain(&i)
	}
	return i, err
}

// The host of an instance i, by its name (of the row h) and by its id. One that is
// shelved_offloaded has none; its row keeps the host that had it last.
const (
	instanceHost   = "CASE i.state WHEN 'shelved_offloaded' THEN '' ELSE h.name END"
	instanceHostID = "CASE i.state WHEN 'shelved_offloaded' THEN '' ELSE i.host_id END"
)

// shownState is the state of an instance i as it is shown.
const shownState = "CASE WHEN i.state = 'paused' AND i.standstill <> '' THEN i.standstill ELSE i.state END"

const instanceQuery = "SELECT i.id, i.name, " + instanceHost + ", " + shownState + `, i.lock_reason, i.lock_op, i.note, i.differs, i.created_us, i.updated_us
	FROM instances i JOIN hosts h ON h.id = i.host_id`

// slotQuery is the block device mappings with what is in them.
const slotQuery = `SELECT s.instance_id, s.device, s.boot_index, s.note, s.definition, a.volume_id, a.id, COALESCE(a.mode, '')
	FROM slots s LEFT JOIN attachments a ON a.instance_id = s.instance_id AND a.device = s.device AND a.migration_id IS NULL`

const slotOrder = " ORDER BY s.instance_id, s.device"

// InstanceByID reads an instance with its slots, sql.ErrNoRows if there is none.
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

// slot is a block device mapping and whose it is.
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

// CheckNoSplitBrain refuses a change of an instance, called verb, while the instance runs
// on a host other than hostID, which has it ("" is no host). That happens if somebody has
// moved the guest with virsh, or started a copy of its definition. Only the host where it
// runs can report it: on the host that has the instance the domain is off. A change that
// frees volumes of the instance or changes its disks would make two writers.
func (tx *Tx) CheckNoSplitBrain(verb, instanceID, hostID string) error {
	other := tx.hosts.SplitBrain(instanceID, hostID)
	if other == "" {
		return nil
	}
	return api.Errorf(api.CodeStateForbidden, "cannot %s: the instance runs on host %s, which does not have it; shut it down there, or fence that host", verb, other).
		With("host", other)
}

// noteSplitBrain puts into an instance on which host it runs that does not have it, if
// there is one. It replaces what the instance's own host noted: that host looks at a domain
// that is off.
func (s *Store) noteSplitBrain(i *api.Instance) {
	if other := s.hosts.SplitBrain(i.ID, i.Host); other != "" {
		i.Note = "it runs on host " + other + ", which does not have it"
	}
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

// SlotDefinitions returns the definitions that the slots of an instance keep, by device.
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
