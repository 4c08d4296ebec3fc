// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

type reservationTx struct{ *Tx }

// Reserve reserves a volume for an instance, after it has checked every rule in the same
// transaction. If the attachment id was used before, it returns the existing attachment.
func (s *Attachments) Reserve(ctx context.Context, call Call, in api.AttachmentReserve) (api.Attachment, error) {
	if err := checkReserve(in); err != nil {
		return api.Attachment{}, err
	}
	return Mutate(ctx, s.db, call, "attachment.reserve", in, func(ctx context.Context, tx *Tx) (api.Attachment, error) {
		rules := reservationTx{tx}
		hostID, err := tx.CheckHost(ctx, in.Host, in.Epoch)
		if err != nil {
			return api.Attachment{}, err
		}
		v, err := rules.volume(ctx, in.VolumeID)
		if err != nil {
			return api.Attachment{}, err
		}
		if same, found, err := rules.same(ctx, v, in, hostID); found || err != nil {
			return same, err
		}
		slot, err := rules.slot(ctx, in.InstanceID, in.Device)
		if err != nil {
			return api.Attachment{}, err
		}
		if err := cmp.Or(slot.checkHolder(hostID, in.Root), tx.CheckNoSplitBrain("attach a volume to instance "+slot.instanceName, in.InstanceID, hostID)); err != nil {
			return api.Attachment{}, err
		}
		if err := slot.check(in); err != nil {
			return api.Attachment{}, err
		}
		if err := rules.check(ctx, v, slot, in); err != nil {
			return api.Attachment{}, err
		}
		if err := cmp.Or(rules.checkAttachReach(ctx, v, hostID), rules.checkNoPaused(ctx, v)); err != nil {
			return api.Attachment{}, err
		}
		return rules.reserve(ctx, v, slot, in)
	})
}

func checkReserve(in api.AttachmentReserve) error {
	if err := cmp.Or(validate.ID("attachment id", in.ID), validate.ID("volume id", in.VolumeID), validate.ID("instance id", in.InstanceID),
		validate.Device(in.Device), validate.Text("op id", in.OpID)); err != nil {
		return err
	}
	return validate.Disk(in.DiskAttachment())
}

type volumeForReserve struct {
	id, name, hostID, scope string
	status                  api.VolumeStatus
	multiattach, bootable   bool
	generation              int64
	movedBy                 string // its open migration, "" if there is none
	location                api.Location
	siblings                []sibling
}

// A sibling is another attachment of the volume. hostID is "" if no host has the attachment's
// instance.
type sibling struct{ id, instanceID, instanceName, hostID string }

const volumeForReserveQuery = `SELECT v.name, v.host_id, l.scope, CASE v.resize_op WHEN '' THEN v.status ELSE 'resizing' END, t.multiattach, v.bootable, v.generation, COALESCE(m.id, ''), ` + LocationColumns + `
	FROM volumes v
	JOIN volume_types t ON t.id = v.type_id
	JOIN locations l ON l.volume_id = v.id AND l.migration_id IS NULL
	LEFT JOIN migrations m ON m.volume_id = v.id AND ` + MigrationOpen + `
	WHERE v.id = ?`

func (tx reservationTx) volume(ctx context.Context, id string) (volumeForReserve, error) {
	v := volumeForReserve{id: id}
	err := tx.QueryRowContext(ctx, volumeForReserveQuery, id).Scan(append([]any{
		&v.name, &v.hostID, &v.scope, &v.status, &v.multiattach, &v.bootable, &v.generation, &v.movedBy,
	}, LocationFields(&v.location)...)...)
	if errors.Is(err, sql.ErrNoRows) {
		return v, api.NotFound("volume", id)
	}
	if err != nil {
		return v, fmt.Errorf("read volume %s: %w", id, err)
	}
	scan := ledger.ScanInto(func(n *sibling) []any { return []any{&n.id, &n.instanceID, &n.instanceName, &n.hostID} })
	v.siblings, err = ledger.QueryAll(ctx, tx, scan, "SELECT a.id, a.instance_id, i.name, "+instanceHostID+`
		FROM attachments a JOIN instances i ON i.id = a.instance_id WHERE a.volume_id = ? AND a.migration_id IS NULL ORDER BY a.id`, id)
	return v, err
}

// same returns the attachment with the requested id, if it exists. It returns a conflict if that
// attachment differs from the request.
func (tx reservationTx) same(ctx context.Context, v volumeForReserve, in api.AttachmentReserve, hostID string) (a api.Attachment, found bool, err error) {
	for _, n := range v.siblings {
		if n.id != in.ID || n.hostID != hostID {
			continue
		}
		a, err = AttachmentByID(ctx, tx, in.ID)
		if err == nil && (a.InstanceID != in.InstanceID || !sameDisk(a.DiskAttachment, in.DiskAttachment())) {
			err = idTaken(in.ID)
		}
		return a, true, err
	}
	return a, false, nil
}

type slotForReserve struct {
	instanceName  string
	instanceState api.InstanceState
	hostID        string // the host with the instance, "" if none
	lock          instanceLock
	there         bool // the slot exists
	bootIndex     *int
	note          string // why the slot's disk is not a volume
	taken         string
	takenBy       string
}

const wantedSlotQuery = "SELECT i.name, i.state, " + instanceHostID + `, i.lock_reason, i.lock_op, s.device IS NOT NULL, s.boot_index, COALESCE(s.note, ''), COALESCE(a.id, ''), COALESCE(v.name, '')
	FROM instances i
	LEFT JOIN slots s ON s.instance_id = i.id AND s.device = ?2
	LEFT JOIN attachments a ON a.instance_id = i.id AND a.device = ?2 AND a.migration_id IS NULL
	LEFT JOIN volumes v ON v.id = a.volume_id
	WHERE i.id = ?1`

func (tx reservationTx) slot(ctx context.Context, instanceID, device string) (slotForReserve, error) {
	var slot slotForReserve
	err := tx.QueryRowContext(ctx, wantedSlotQuery, instanceID, device).Scan(&slot.instanceName, &slot.instanceState, &slot.hostID,
		&slot.lock.reason, &slot.lock.op, &slot.there, &slot.bootIndex, &slot.note, &slot.taken, &slot.takenBy)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return slot, api.NotFound("instance", instanceID)
	case err != nil:
		return slot, fmt.Errorf("read instance %s: %w", instanceID, err)
	}
	return slot, nil
}

func (s slotForReserve) checkHolder(hostID string, root bool) error {
	state := s.instanceState
	switch {
	case s.hostID != "" && s.hostID != hostID:
		return api.Errorf(api.CodeNotYourHost, "cannot attach a volume to instance %s: it is another host's", s.instanceName)
	case state == api.InstanceShelved && root:
		return api.Errorf(api.CodeRootAttachForbidden, "cannot attach a root device volume to instance %s: it is %s; %s", s.instanceName, state, stopAdvice(s.instanceName, state)).With("state", state)
	case state.OnShelf(), state == api.InstanceError:
		return api.Errorf(api.CodeStateForbidden, "cannot attach a volume to instance %s: it is %s", s.instanceName, state).With("state", state)
	}
	return nil
}

// check refuses a slot that is taken, and an instance that is locked. A root slot must also be
// requested explicitly, and its instance must be stopped or shelved_offloaded.
func (s slotForReserve) check(in api.AttachmentReserve) error {
	if err := s.lock.check("attach a volume to", s.instanceName); err != nil {
		return err
	}
	state := s.instanceState
	switch root := api.IsRoot(s.bootIndex); {
	case s.taken != "":
		return api.Errorf(api.CodeConflict, "the device %s of instance %s is taken by volume %s; detach that first", in.Device, s.instanceName, s.takenBy).With("attachment_id", s.taken)
	case s.note != "":
		return api.Errorf(api.CodeConflict, "the device %s of instance %s is taken: %s", in.Device, s.instanceName, s.note)
	case in.Root && !root:
		return api.Errorf(api.CodeConflict, "the device %s of instance %s is not its root slot", in.Device, s.instanceName)
	case root && state != api.InstanceStopped && state != api.InstanceShelvedOffloaded:
		return api.Errorf(api.CodeRootAttachForbidden, "cannot attach a root device volume to instance %s: it is %s; %s", s.instanceName, state, stopAdvice(s.instanceName, state)).With("state", state)
	case root && !in.Root:
		return api.Errorf(api.CodeRootAttachForbidden, "cannot attach a volume to instance %s as %s: it boots from that; say --root if that is meant", s.instanceName, in.Device)
	}
	return nil
}

// check refuses a reservation by the volume's state, type and policies, but not by the host's
// reach (checkAttachReach).
func (tx reservationTx) check(ctx context.Context, v volumeForReserve, slot slotForReserve, in api.AttachmentReserve) error {
	switch {
	case v.movedBy != "":
		return refuseMoving("attach", v.name, v.movedBy)
	case v.status != api.VolumeAvailable:
		return api.Errorf(api.CodeVolumeNotAvailable, "cannot attach volume %s: it is %s", v.name, v.status).With("status", v.status)
	case v.generation != in.Generation:
		return staleGeneration("attach", v.name, v.generation, in.Generation)
	case len(v.siblings) > 0 && !v.multiattach:
		n := v.siblings[0]
		return usedByInstance(v.name, n.instanceName, n.instanceID, n.id)
	case v.location.IsLUKS():
		return api.Errorf(api.CodeUnsupportedDisk, "cannot attach volume %s: it is encrypted by QEMU (LUKS), and such a volume comes to an instance only when that is adopted with it", v.name)
	case v.multiattach && v.location.Format != api.FormatRaw:
		return api.Errorf(api.CodeUnsupportedDisk, "cannot attach volume %s: its type is multiattach and it is %s; only raw can be attached more than once", v.name, v.location.Format)
	}
	if in.Root && v.multiattach && !v.bootable {
		// A root volume becomes bootable, so the rules for bootable volumes apply.
		if err := checkPolicy(ctx, tx, "attach the multiattach volume "+v.name+" as a root volume", api.PolicyMultiattachBootable); err != nil {
			return err
		}
	}
	return tx.checkMultiattach(ctx, v, slot, in)
}

func (tx reservationTx) checkMultiattach(ctx context.Context, v volumeForReserve, slot slotForReserve, in api.AttachmentReserve) error {
	if len(v.siblings) == 0 {
		return nil
	}
	for _, n := range v.siblings {
		if n.instanceID == in.InstanceID {
			return alreadyAttached(v.name, slot.instanceName, n.id)
		}
	}
	return checkPolicies(ctx, tx, "attach volume "+v.name+" again", v.bootable || in.Root)
}

// checkAttachReach refuses a host that does not reach the volume's bytes. If the volume is
// attached on another host too, both hosts must reach the same bytes.
func (tx reservationTx) checkAttachReach(ctx context.Context, v volumeForReserve, hostID string) error {
	owner, elsewhere := v.hostID, false
	for _, n := range v.siblings {
		if n.hostID != hostID && n.hostID != "" {
			// If this host made the volume, the other host need not have the same pool.
			owner, elsewhere = n.hostID, true
		}
	}
	reached, err := Reaches(ctx, tx, hostID, owner, v.scope, v.location)
	switch {
	case err != nil:
		return err
	case reached:
		return tx.CheckNotBehind(ctx, "attach", v.name, v.location, hostID)
	case v.scope == scopeShared && v.location.Backing != "":
		return api.Errorf(api.CodeNotYourHost, "cannot attach volume %s on this host: %s is another host's, and this one does not reach it with all its base images, as they are in no pool that both have at the same path and share", v.name, Place(v.location))
	case elsewhere:
		return api.Errorf(api.CodeUnsupportedDisk, "cannot attach volume %s on a second host: %s is in no pool that both hosts have and report as shared", v.name, Place(v.location))
	}
	return api.Errorf(api.CodeNotYourHost, "cannot attach volume %s on this host: %s is another host's, and in no shared pool that this one has", v.name, Place(v.location))
}

func (tx reservationTx) reserve(ctx context.Context, v volumeForReserve, slot slotForReserve, in api.AttachmentReserve) (api.Attachment, error) {
	host, err := tx.resolveHost(ctx, in.Host)
	if err != nil {
		return api.Attachment{}, err
	}
	h := attachmentRow{
		Attachment: api.Attachment{
			ID: in.ID, VolumeID: v.id, VolumeName: v.name, InstanceID: in.InstanceID, InstanceName: slot.instanceName, Host: host.Name,
			DiskAttachment: in.DiskAttachment(), State: api.AttachmentReserved, Location: v.location, CreatedAt: tx.At, UpdatedAt: tx.At,
		},
		opID: in.OpID, hostID: host.ID, instanceState: slot.instanceState, generation: v.generation,
	}
	h.BootIndex = slot.bootIndex
	if err := tx.store(ctx, v, slot, h); err != nil {
		return api.Attachment{}, err
	}
	tx.cache.attachments.put(h)
	return h.Attachment, tx.auditAttachment(ctx, h, api.Event{What: "attachment.reserve", To: string(h.State), OpID: in.OpID},
		diskDetails(h.DiskAttachment))
}

// store stores an attachment. A volume in the root slot becomes bootable, like an adopted root
// volume.
func (tx reservationTx) store(ctx context.Context, v volumeForReserve, slot slotForReserve, h attachmentRow) error {
	if !slot.there {
		if err := tx.Exec(ctx, addSlot, h.InstanceID, h.Device); err != nil {
			return err
		}
	}
	if api.IsRoot(slot.bootIndex) && !v.bootable {
		if err := tx.Exec(ctx, "UPDATE volumes SET bootable = 1, updated_us = ? WHERE id = ?", tx.At.UnixMicro(), v.id); err != nil {
			return err
		}
	}
	return tx.insertAttachment(ctx, attachment{Attachment: h.Attachment, exclusive: !v.multiattach, opID: h.opID})
}

// checkNoPaused refuses to attach a volume while a move has paused another guest of the volume:
// that guest's memory would be older than the new guest's writes.
func (tx reservationTx) checkNoPaused(ctx context.Context, v volumeForReserve) error {
	if len(v.siblings) == 0 {
		return nil
	}
	type guest struct{ instance, migration string }
	scan := ledger.ScanInto(func(g *guest) []any { return []any{&g.instance, &g.migration} })
	paused, err := ledger.QueryAll(ctx, tx, scan, `SELECT i.name, g.migration_id FROM attachments a
		JOIN instances i ON i.id = a.instance_id
		JOIN pause_instances g ON g.instance_id = i.id
		WHERE a.volume_id = ? AND g.migration_id = i.lock_op AND g.state <> 'restored' LIMIT 1`, v.id)
	if err != nil {
		return fmt.Errorf("look for guests that are paused: %w", err)
	}
	if len(paused) == 0 {
		return nil
	}
	return api.Errorf(api.CodeInstanceLocked, "cannot attach volume %s: instance %s has it too and is put to rest by migration %s; try again when that is over", v.name, paused[0].instance, paused[0].migration).
		With("migration_id", paused[0].migration)
}

// AttachUnheld attaches a volume at once to an instance that no host has: no guest has to get the
// disk.
func (tx *Tx) AttachUnheld(ctx context.Context, in api.AttachmentReserve) (none api.Attachment, err error) {
	rules := reservationTx{tx}
	v, err := rules.volume(ctx, in.VolumeID)
	if err != nil {
		return none, err
	}
	slot, err := rules.slot(ctx, in.InstanceID, in.Device)
	if err != nil {
		return none, err
	}
	if err := slot.check(in); err != nil {
		return none, err
	}
	if err := rules.check(ctx, v, slot, in); err != nil {
		return none, err
	}
	h := attachmentRow{
		Attachment: api.Attachment{
			ID: in.ID, VolumeID: v.id, VolumeName: v.name, InstanceID: in.InstanceID, InstanceName: slot.instanceName,
			DiskAttachment: in.DiskAttachment(), State: api.AttachmentAttached,
		},
		opID: in.OpID, generation: v.generation,
	}
	if err := rules.store(ctx, v, slot, h); err != nil {
		return none, err
	}
	if err := tx.auditAttachment(ctx, h, api.Event{What: "attachment.attach", To: string(h.State), OpID: in.OpID},
		diskDetails(h.DiskAttachment)); err != nil {
		return none, err
	}
	return AttachmentByID(ctx, tx, in.ID)
}
