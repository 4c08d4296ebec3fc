// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

// RegisterInstance records an adopted instance: its slots, and each of its
// disks as a volume with one attachment. All of it or nothing.
func (s *Store) RegisterInstance(ctx context.Context, call Call, in api.InstanceRegister) (api.Instance, error) {
	if err := checkInstance(in); err != nil {
		return api.Instance{}, err
	}
	return Mutate(ctx, s, call, "instance.register", in, func(ctx context.Context, tx *Tx) (api.Instance, error) {
		hostID, err := tx.checkSelf(ctx, in.Host)
		if err != nil {
			return api.Instance{}, err
		}
		if err := tx.insertInstance(ctx, in, hostID); err != nil {
			return api.Instance{}, err
		}
		for _, d := range in.Disks {
			if err := tx.adoptDisk(ctx, in, hostID, d); err != nil {
				return api.Instance{}, err
			}
		}
		i, err := InstanceByID(ctx, tx, in.ID)
		if err != nil {
			return i, err
		}
		// The next report may bring a newer state than the adoption did.
		tx.OnCommit(func() { s.hosts.Invalidate(hostID) })
		return i, tx.Audit(ctx, api.Event{
			What: "instance.register", Host: i.Host, Object: "instance/" + i.ID, To: string(i.State),
			Details: map[string]any{"name": i.Name, "volumes": len(in.Disks)},
		})
	})
}

func checkInstance(in api.InstanceRegister) error {
	if err := cmp.Or(validate.ID("instance id", in.ID), validate.Required("instance name", in.Name), validate.InstanceState(in.State)); err != nil {
		return err
	}
	if in.State.OnShelf() {
		return validate.Invalid("instance %s cannot be %s: no domain is adopted from the shelf", in.Name, in.State)
	}
	for _, d := range in.Disks {
		if err := cmp.Or(validate.ID("volume id", d.VolumeID), validate.Name("volume name", d.VolumeName), validate.ID("attachment id", d.AttachmentID),
			checkSlot(d.Device, d.BootIndex), validate.Location("disk "+d.Device, d.Location)); err != nil {
			return err
		}
		if err := validate.Mode(d.Mode, d.Device); err != nil {
			return err
		}
	}
	for _, slot := range in.Slots {
		if err := checkSlot(slot.Device, slot.BootIndex); err != nil {
			return err
		}
		if slot.VolumeID != nil || slot.AttachmentID != nil {
			return validate.Invalid("the slot %s names a volume; that belongs into disks", slot.Device)
		}
		if slot.Slot != nil {
			if err := validate.SlotDefinition(slot.Device, *slot.Slot); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkSlot(device string, bootIndex *int) error {
	if err := validate.Device(device); err != nil {
		return err
	}
	if bootIndex != nil && *bootIndex < 0 {
		return validate.Invalid("the boot index %d of %s is negative", *bootIndex, device)
	}
	return nil
}

// insertInstance makes the rows of an instance and all its slots.
func (tx *Tx) insertInstance(ctx context.Context, in api.InstanceRegister, hostID string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO instances (id, name, host_id, state, created_us, updated_us) VALUES (?1, ?2, ?3, ?4, ?5, ?5)",
		in.ID, in.Name, hostID, in.State, tx.At.UnixMicro())
	switch {
	case sqlitedb.Violates(err, "instances.id"):
		return api.Errorf(api.CodeConflict, "instance %s is adopted already", in.Name)
	case sqlitedb.Violates(err, "instances.host_id", "instances.name"):
		return api.Errorf(api.CodeConflict, "the host has an instance %s with another id; forget that one first", in.Name)
	case err != nil:
		return fmt.Errorf("store instance: %w", err)
	}
	for _, slot := range in.Slots {
		if err := tx.insertSlot(ctx, in, slot); err != nil {
			return err
		}
	}
	for _, d := range in.Disks {
		if err := tx.insertSlot(ctx, in, api.BlockDeviceMapping{Device: d.Device, BootIndex: d.BootIndex}); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) insertSlot(ctx context.Context, in api.InstanceRegister, slot api.BlockDeviceMapping) error {
	definition, err := encodeSlot(slot.Slot)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO slots (instance_id, device, boot_index, note, definition) VALUES (?, ?, ?, ?, ?)",
		in.ID, slot.Device, slot.BootIndex, slot.Note, definition)
	switch {
	case sqlitedb.Violates(err, "slots.instance_id", "slots.device"):
		return validate.Invalid("instance %s has the device %s twice", in.Name, slot.Device)
	case sqlitedb.Violates(err, "slots.instance_id", "slots.boot_index"):
		return validate.Invalid("instance %s has the boot index %d twice", in.Name, *slot.BootIndex)
	case err != nil:
		return fmt.Errorf("store slot: %w", err)
	}
	return nil
}

// ForgetInstance ends Volferry's care of an instance and returns what it was.
// Its volumes stay, and become available once nothing else has them.
func (s *Store) ForgetInstance(ctx context.Context, call Call, ref string) (api.Instance, error) {
	return s.forgetInstance(ctx, call, ref, false)
}

// ForgetInstanceWithDefinition is ForgetInstance also for an instance that no host
// has: what the registry has of it is all there is, and is lost with it.
func (s *Store) ForgetInstanceWithDefinition(ctx context.Context, call Call, ref string) (api.Instance, error) {
	return s.forgetInstance(ctx, call, ref, true)
}

func (s *Store) forgetInstance(ctx context.Context, call Call, ref string, withDefinition bool) (api.Instance, error) {
	return Mutate(ctx, s, call, "instance.forget", []any{ref, withDefinition}, func(ctx context.Context, tx *Tx) (api.Instance, error) {
		i, err := tx.OwnInstance(ctx, ref, "forget")
		if err != nil {
			return i, err
		}
		if err := lockOf(i).check("forget", i.Name); err != nil {
			return i, err
		}
		if i.State == api.InstanceShelvedOffloaded && !withDefinition {
			return i, api.Errorf(api.CodeStateForbidden, "cannot forget instance %s: no host has it, and its definition would be lost for good; unshelve it first, or forget it with its definition",
				i.Name).With("state", i.State)
		}
		volumes, err := ledger.QueryAll(ctx, tx, scanVolume, volumeQuery+" WHERE v.id IN (SELECT volume_id FROM attachments WHERE instance_id = ?) ORDER BY v.name", i.ID)
		if err != nil {
			return i, err
		}
		for _, v := range volumes {
			if v.MigrationID != "" {
				return i, api.Errorf(api.CodeMigrationActive, "cannot forget instance %s: migration %s is moving its volume %s; complete or cancel that first",
					i.Name, v.MigrationID, v.Name).With("migration_id", v.MigrationID)
			}
		}
		if err := tx.checkForgettable(ctx, i); err != nil {
			return i, err
		}
		// Slots, attachments and what is on the shelf go with it.
		var hostID string
		if err := tx.QueryRowContext(ctx, "DELETE FROM instances WHERE id = ? RETURNING host_id", i.ID).Scan(&hostID); err != nil {
			return i, fmt.Errorf("forget instance: %w", err)
		}
		// It may go on there, as a stray, and its host say what it said before.
		tx.OnCommit(func() { s.hosts.Invalidate(hostID) })
		return i, tx.Audit(ctx, api.Event{
			What: "instance.forget", Host: i.Host, Object: "instance/" + i.ID, From: string(i.State),
			Details: map[string]any{"name": i.Name, "volumes": len(volumes)},
		})
	})
}

// checkForgettable refuses an instance with a volume that another host reaches: its
// domain names that disk as before, and only its own host would see it there before
// it gives the volume to somebody else. One that no host has has no domain.
func (tx *Tx) checkForgettable(ctx context.Context, i api.Instance) error {
	if i.State == api.InstanceShelvedOffloaded {
		return nil
	}
	volumes, err := ledger.QueryAll(ctx, tx, ledger.ScanString, `SELECT v.name FROM attachments a
		JOIN instances i ON i.id = a.instance_id
		JOIN volumes v ON v.id = a.volume_id
		JOIN locations l ON l.volume_id = v.id AND l.migration_id IS NULL AND l.scope = 'shared'
		WHERE i.id = ? AND EXISTS (SELECT 1 FROM pools p WHERE p.name = l.pool AND p.shared = 1 AND p.host_id <> i.host_id)
		ORDER BY v.name LIMIT 1`, i.ID)
	if err != nil || len(volumes) == 0 {
		return err
	}
	return api.Errorf(api.CodeVolumeInUse, "cannot forget instance %s: another host could be given its volume %s, which its domain would still have; detach that, or where the domain is without it, `volferryctl attachment delete --force`",
		i.Name, volumes[0])
}

// Instances returns every instance, by name. A host finds its own.
func (s *Store) Instances(ctx context.Context, viewer Viewer) ([]api.Instance, error) {
	return ledger.View(ctx, s.db.Read, func(q ledger.Querier) ([]api.Instance, error) {
		instances, err := ledger.QueryAll(ctx, q, scanInstance, instanceQuery+" WHERE "+viewer.visible(ownsInstance)+" ORDER BY i.name, i.id", viewer.HostID)
		if err != nil {
			return nil, err
		}
		slots, err := ledger.QueryAll(ctx, q, scanSlot, slotQuery+" JOIN instances i ON i.id = s.instance_id WHERE "+viewer.visible(ownsInstance)+slotOrder, viewer.HostID)
		if err != nil {
			return nil, err
		}
		of := map[string][]api.BlockDeviceMapping{}
		for _, s := range slots {
			of[s.instanceID] = append(of[s.instanceID], s.BlockDeviceMapping)
		}
		for n := range instances {
			instances[n].BlockDeviceMappings = append(instances[n].BlockDeviceMappings, of[instances[n].ID]...)
			s.noteSplitBrain(&instances[n])
		}
		return instances, nil
	})
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

const instanceQuery = "SELECT i.id, i.name, " + instanceHost + `, i.state, i.lock_reason, i.lock_op, i.note, i.created_us, i.updated_us
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
	err := row.Scan(&i.ID, &i.Name, &i.Host, &i.State, &i.LockReason, &i.LockedBy, &i.Note, &created, &updated)
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
