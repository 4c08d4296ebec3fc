// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/store"
	"github.com/volferry/volferry/registry/internal/validate"
)

// ErrOnHost means that an instance is on a host, which must attach and detach its volumes. Nothing
// was changed.
var ErrOnHost = errors.New("the instance is on a host")

// Attach attaches a volume at once to an instance that is shelved_offloaded: no guest has to
// get the disk. For other instances it returns ErrOnHost.
func (s *Shelf) Attach(ctx context.Context, call store.Call, volumeRef string, in api.VolumeAttach) (api.Attachment, error) {
	in = in.WithDefaults() // also for the comparison with a repeated request
	disk := in.DiskAttachment()
	if err := validate.Disk(disk); err != nil {
		return api.Attachment{}, err
	}
	if disk.Device != "" {
		if err := validate.Device(disk.Device); err != nil {
			return api.Attachment{}, err
		}
	}
	return mutate(ctx, s.db, call, "attachment.attach", []any{volumeRef, in}, func(ctx context.Context, tx *changeTx) (none api.Attachment, err error) {
		i, err := tx.shelvedInstanceOf(ctx, in.Instance, "attach a volume to")
		if err != nil {
			return none, err
		}
		v, err := tx.OwnVolume(ctx, volumeRef, "attach")
		if err != nil {
			return none, err
		}
		disk := disk // a second run chooses again
		if disk.Device == "" {
			if disk.Device, err = freeDevice(i, in.Root); err != nil {
				return none, err
			}
		}
		return tx.AttachUnheld(ctx, disk.Reserve(api.AttachmentReserve{
			ID: uuid.NewString(), VolumeID: v.ID, InstanceID: i.ID, Generation: v.Generation, OpID: call.Key, Root: in.Root,
		}))
	})
}

// shelvedInstanceOf returns the instance that ref names, or ErrOnHost if a host has it; verb names
// the change.
func (tx *changeTx) shelvedInstanceOf(ctx context.Context, ref, verb string) (api.Instance, error) {
	i, err := tx.OwnInstance(ctx, ref, verb)
	if err == nil && i.State != api.InstanceShelvedOffloaded {
		err = ErrOnHost
	}
	return i, cmp.Or(err, tx.CheckNoSplitBrain(verb+" instance "+i.Name, i.ID, ""))
}

func freeDevice(i api.Instance, root bool) (string, error) {
	switch slot := i.RootSlot(); {
	case root && slot == nil:
		return "", api.Errorf(api.CodeConflict, "cannot attach root device volume to instance %s: it has no root slot", i.Name)
	case root:
		return slot.Device, nil
	}
	const letters = "abcdefghijklmnopqrstuvwxyz"
	for _, first := range " " + letters {
		for _, last := range letters {
			device := "vd" + string(last)
			if first != ' ' {
				device = "vd" + string(first) + string(last)
			}
			if !slices.ContainsFunc(i.BlockDeviceMappings, func(s api.BlockDeviceMapping) bool { return s.Device == device }) {
				return device, nil
			}
		}
	}
	return "", api.Errorf(api.CodeConflict, "cannot attach a volume to instance %s: every device is taken", i.Name)
}

// Detach detaches a volume from an instance that is shelved_offloaded, and returns the
// attachment as it was. For other instances it returns ErrOnHost.
func (s *Shelf) Detach(ctx context.Context, call store.Call, volumeRef string, in api.VolumeDetach) (api.Attachment, error) {
	return mutate(ctx, s.db, call, "attachment.detach", []any{volumeRef, in}, func(ctx context.Context, tx *changeTx) (none api.Attachment, err error) {
		i, err := tx.shelvedInstanceOf(ctx, in.Instance, "detach a volume from")
		if err != nil {
			return none, err
		}
		v, err := tx.Volume(ctx, volumeRef)
		if err != nil {
			return none, err
		}
		at := slices.IndexFunc(v.Attachments, func(a api.Attachment) bool { return a.InstanceID == i.ID })
		if at < 0 {
			return none, api.Errorf(api.CodeNotFound, "volume %s is not attached to instance %s", v.Name, i.Name)
		}
		return tx.detachShelved(ctx, i, v.Attachments[at].ID)
	})
}

// DeleteAttachment is Detach for the attachment that ref names. It returns not_found if there is
// none. A repeated request gets the first answer, even from Attachments.ForceDelete.
func (s *Shelf) DeleteAttachment(ctx context.Context, call store.Call, ref string) (api.Attachment, error) {
	return mutate(ctx, s.db, call, "attachment.force_delete", ref, func(ctx context.Context, tx *changeTx) (none api.Attachment, err error) {
		id, err := store.Resolve(ctx, tx, store.KindAttachment, ref)
		if err != nil {
			return none, err
		}
		a, err := store.AttachmentByID(ctx, tx, id)
		if err != nil {
			return none, err
		}
		i, err := tx.shelvedInstanceOf(ctx, a.InstanceID, "detach a volume from")
		if err != nil {
			return none, err
		}
		return tx.detachShelved(ctx, i, id)
	})
}

// detachShelved removes an attachment of an instance without a host. A root slot keeps the disk's
// definition.
func (tx *changeTx) detachShelved(ctx context.Context, i api.Instance, id string) (api.Attachment, error) {
	definition, err := tx.storedDefinition(ctx, i.ID)
	if err != nil {
		return api.Attachment{}, err
	}
	return tx.DetachUnheld(ctx, id, definition.Disks)
}
