// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
	"github.com/volferry/volferry/internal/sqlitedb"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

type adoptionTx struct{ *Tx }

// Register records an adopted instance and its slots, in one transaction. Each disk becomes a
// volume with one attachment.
func (s *Instances) Register(ctx context.Context, call Call, in api.InstanceRegister) (api.Instance, error) {
	if err := checkInstance(in); err != nil {
		return api.Instance{}, err
	}
	return Mutate(ctx, s.db, call, "instance.register", in, func(ctx context.Context, tx *Tx) (api.Instance, error) {
		adoption := adoptionTx{tx}
		hostID, err := tx.checkSelf(ctx, in.Host)
		if err != nil {
			return api.Instance{}, err
		}
		if err := adoption.insertInstance(ctx, in, hostID); err != nil {
			return api.Instance{}, err
		}
		for _, d := range in.Disks {
			if err := adoption.adoptDisk(ctx, in, hostID, d); err != nil {
				return api.Instance{}, err
			}
		}
		i, err := InstanceByID(ctx, tx, in.ID)
		if err != nil {
			return i, err
		}
		// The next report may have a newer state than the adoption.
		tx.OnCommit(func() { s.db.hosts.Invalidate(hostID) })
		return i, tx.Audit(ctx, api.Event{
			What: "instance.register", Host: i.Host, Object: "instance/" + i.ID, To: string(i.State),
			Details: map[string]any{"name": i.Name, "volumes": len(in.Disks)},
		})
	})
}

func checkInstance(in api.InstanceRegister) error {
	if err := cmp.Or(validate.ID("instance id", in.ID), validate.Required("instance name", in.Name), validate.Word("instance name", in.Name), validate.InstanceState(in.State)); err != nil {
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
		if err := validate.Disk(d.DiskAttachment()); err != nil {
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

func (tx adoptionTx) insertInstance(ctx context.Context, in api.InstanceRegister, hostID string) error {
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

func (tx adoptionTx) insertSlot(ctx context.Context, in api.InstanceRegister, slot api.BlockDeviceMapping) error {
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

type instanceForgetTx struct{ *Tx }

// Forget has the options of Instances.Forget.
type Forget struct {
	// WithDefinition also allows an instance that no host has. Its stored definition, which has no
	// other copy, is removed too.
	WithDefinition bool
	// Force also allows an instance if its host last reported that its disks are not at the
	// locations of its volumes.
	Force bool
}

// Forget removes an instance from the registry and returns it as it was. Its volumes stay,
// available without another attachment. A host that forgets its own instance must have checked the
// disks.
func (s *Instances) Forget(ctx context.Context, call Call, ref string, how Forget) (api.Instance, error) {
	return Mutate(ctx, s.db, call, "instance.forget", []any{ref, how.WithDefinition}, func(ctx context.Context, tx *Tx) (api.Instance, error) {
		rules := instanceForgetTx{tx}
		i, err := tx.OwnInstance(ctx, ref, "forget")
		if err != nil {
			return i, err
		}
		if err := lockOf(i).check("forget", i.Name); err != nil {
			return i, err
		}
		if i.State == api.InstanceShelvedOffloaded && !how.WithDefinition {
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
		if err := rules.check(ctx, i); err != nil {
			return i, err
		}
		if call.Host == nil && !how.Force {
			if err := rules.checkOnItsVolumes(ctx, i); err != nil {
				return i, err
			}
		}
		var hostID string
		if err := tx.QueryRowContext(ctx, "DELETE FROM instances WHERE id = ? RETURNING host_id", i.ID).Scan(&hostID); err != nil {
			return i, fmt.Errorf("forget instance: %w", err)
		}
		// The domain may continue to run there, as a split brain, and its host may repeat its last
		// report.
		tx.OnCommit(func() { s.db.hosts.Invalidate(hostID) })
		return i, tx.Audit(ctx, api.Event{
			What: "instance.forget", Host: i.Host, Object: "instance/" + i.ID, From: string(i.State),
			Details: map[string]any{"name": i.Name, "volumes": len(volumes)},
		})
	})
}

// check refuses an instance with a volume that another host reaches: another host would attach the
// volume without knowing of this instance's domain.
func (tx instanceForgetTx) check(ctx context.Context, i api.Instance) error {
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

func (tx instanceForgetTx) checkOnItsVolumes(ctx context.Context, i api.Instance) error {
	if i.State == api.InstanceShelvedOffloaded {
		return nil
	}
	var differs bool
	if err := tx.QueryRowContext(ctx, "SELECT differs FROM instances WHERE id = ?", i.ID).Scan(&differs); err != nil {
		return fmt.Errorf("read whether an instance differs: %w", err)
	}
	if !differs {
		return nil
	}
	return api.ForgetRefusal(i.Name, i.Note)
}

func (tx adoptionTx) adoptDisk(ctx context.Context, in api.InstanceRegister, hostID string, d api.AdoptedDisk) error {
	v, err := volumeByID(ctx, tx, d.VolumeID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		if err := tx.adoptNew(ctx, hostID, d); err != nil {
			return err
		}
		v, err = volumeByID(ctx, tx, d.VolumeID)
	case err == nil && len(v.Attachments) > 0:
		err = tx.adoptShared(ctx, in, v, hostID, d)
	case err == nil:
		err = tx.readopt(ctx, v, hostID, d)
	}
	if err != nil {
		return err
	}
	a := d.Attachment(&in)
	a.VolumeID, a.VolumeName, a.InstanceName = v.ID, v.Name, in.Name
	return tx.insertAttachment(ctx, attachment{Attachment: a, exclusive: !v.Multiattach})
}

// adoptNew registers a disk as a volume, of a multiattach type only if the domain shares the disk.
func (tx adoptionTx) adoptNew(ctx context.Context, hostID string, d api.AdoptedDisk) error {
	t, err := typeByRef(ctx, tx, cmp.Or(d.Type, DefaultType))
	if err != nil {
		return err
	}
	name := t.Name
	if t.Multiattach && !d.Shareable {
		name = DefaultType
	}
	return volumeTx(tx).insert(ctx, api.VolumeRegister{
		ID: d.VolumeID, Name: d.VolumeName, Type: name, Bootable: api.IsRoot(d.BootIndex), Location: d.Location,
	}, hostID, api.VolumeAvailable)
}

// adoptShared adopts a disk that is an attached volume, by the rules of attaching; in addition the
// domain must define the disk as shareable.
func (tx adoptionTx) adoptShared(ctx context.Context, in api.InstanceRegister, v api.Volume, hostID string, d api.AdoptedDisk) error {
	rules := reservationTx(tx)
	has := v.Attachments[0]
	refuse := func(code api.Code, format string, args ...any) *api.Error {
		args = append([]any{d.Device, in.Name, v.Name, cmp.Or(has.InstanceName, has.InstanceID)}, args...)
		return api.Errorf(code, "cannot adopt disk %s of domain %s: it is volume %s, which instance %s has; "+format, args...).
			With("volume_id", v.ID).With("instance_id", has.InstanceID)
	}
	switch {
	case v.MigrationID != "":
		return MigrationActive(v, "adopt a disk of")
	case !v.Multiattach:
		return refuse(api.CodeVolumeInUse, "if they share it, `%s`, `%s` to a multiattach type, and adopt both again",
			shell.Line("volferryctl", "instance", "forget", cmp.Or(has.InstanceName, has.InstanceID)), shell.Line("volferryctl", "volume", "retype", v.Name, "--type", "TYPE"))
	case !d.Shareable:
		return refuse(api.CodeUnsupportedDisk, "its definition does not share it; %s", shareDisk(in.Name, v.Name, d))
	case v.Location.Path != d.Location.Path:
		return refuse(api.CodeConflict, "it is at %s there and at %s here", v.Location.Path, d.Location.Path)
	}
	w, err := rules.volume(ctx, v.ID)
	if err != nil {
		return err
	}
	again := api.AttachmentReserve{InstanceID: in.ID, Root: api.IsRoot(d.BootIndex)}
	if err := rules.checkMultiattach(ctx, w, slotForReserve{instanceName: in.Name}, again); err != nil {
		return err
	}
	return rules.checkAttachReach(ctx, w, hostID)
}

// shareDisk advises how to make a disk shareable. Attaching a multiattach volume defines a
// shareable disk. A root disk must not be detached for this: it would lose its boot index.
func shareDisk(instance, volume string, d api.AdoptedDisk) string {
	if api.IsRoot(d.BootIndex) {
		return fmt.Sprintf("it has to have <shareable/> in a definition that you give to `virsh define` with the instance off, for which no command of virsh or volferryctl is enough (`%s` prints it); then adopt it again",
			shell.Line("virsh", "dumpxml", "--inactive", "--security-info", "--", instance))
	}
	attach := []string{"volferryctl", "volume", "attach", volume, instance, "--device", d.Device}
	if d.Mode == api.ModeRO {
		attach = append(attach, "--mode", string(d.Mode))
	}
	return fmt.Sprintf("take it out (`%s`), adopt the instance without it (`%s`), and attach the volume, which shares it (`%s`)",
		shell.Line("virsh", "detach-disk", "--persistent", "--", instance, d.Device), shell.Line("volferryctl", "instance", "adopt", instance), shell.Line(attach...))
}

// readopt attaches an existing volume of a forgotten instance. The volume must be available and at
// the disk's location.
func (tx adoptionTx) readopt(ctx context.Context, v api.Volume, hostID string, d api.AdoptedDisk) error {
	if v.Status != api.VolumeAvailable || v.MigrationID != "" {
		return api.Errorf(api.CodeVolumeNotAvailable, "cannot adopt disk %s: its volume %s is %s", d.Device, v.Name, v.Status)
	}
	if v.Location.Path != d.Location.Path {
		return api.Errorf(api.CodeConflict, "cannot adopt disk %s at %s: its volume %s is at %s", d.Device, d.Location.Path, v.Name, v.Location.Path)
	}
	if err := tx.checkReach(ctx, "take back", v, hostID); err != nil {
		return err
	}
	return tx.Exec(ctx, "UPDATE volumes SET host_id = ?, updated_us = ? WHERE id = ?", hostID, tx.At.UnixMicro(), v.ID)
}
