// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/shell"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

type resizeTx struct{ *Tx }

// BeginResize locks a volume that a host is about to make larger, and returns the volume.
// EndResize by the same op, or a fence of the host, ends the lock. A host does one thing at a time
// to a volume, so a new op replaces the stale lock of an earlier one.
func (s *Volumes) BeginResize(ctx context.Context, call Call, ref string, in api.VolumeResizeBegin) (api.Volume, error) {
	if err := validate.Required("op id", in.OpID); err != nil {
		return api.Volume{}, err
	}
	return Mutate(ctx, s.db, call, "volume.resize_begin", []any{ref, in}, func(ctx context.Context, tx *Tx) (api.Volume, error) {
		resize := resizeTx{tx}
		hostID, err := tx.CheckHost(ctx, in.Host, in.Epoch)
		if err != nil {
			return api.Volume{}, err
		}
		v, err := careTx{tx}.inHand(ctx, ref, resizeVerb)
		if err != nil {
			return v, err
		}
		if err := resize.check(ctx, v, hostID, in); err != nil {
			return v, err
		}
		if err := tx.Exec(ctx, "UPDATE volumes SET resize_op = ?, resize_host = ?, updated_us = ? WHERE id = ?", in.OpID, hostID, tx.At.UnixMicro(), v.ID); err != nil {
			return v, err
		}
		if err := tx.auditVolume(ctx, v, api.Event{What: "volume.resize_begin", From: string(v.Status), To: string(api.VolumeResizing), OpID: in.OpID}, nil); err != nil {
			return v, err
		}
		return volumeByID(ctx, tx, v.ID)
	})
}

const resizeVerb = "resize"

func (tx resizeTx) check(ctx context.Context, v api.Volume, hostID string, in api.VolumeResizeBegin) error {
	if v.ResizeOpID != "" {
		holder, err := tx.resizedBy(ctx, v.ID)
		if err != nil {
			return err
		}
		if holder != hostID {
			return NotAvailable(v, resizeVerb)
		}
		return nil // everything was checked when that resize began
	}
	switch {
	case v.MigrationID != "":
		return MigrationActive(v, resizeVerb)
	case v.Generation != in.Generation:
		return staleGeneration(resizeVerb, v.Name, v.Generation, in.Generation)
	case len(v.Attachments) > 1:
		return api.Errorf(api.CodeMultiattached, "cannot resize volume %s: it has %d attachments; detach all but one", v.Name, len(v.Attachments)).With("attachments", len(v.Attachments))
	case v.Status != api.VolumeAvailable && v.Status != api.VolumeInUse:
		return NotAvailable(v, resizeVerb)
	case len(v.Attachments) == 0:
		return tx.checkReach(ctx, resizeVerb, v, hostID)
	}
	return tx.checkAt(ctx, v, v.Attachments[0], hostID)
}

func (tx resizeTx) checkAt(ctx context.Context, v api.Volume, a api.Attachment, hostID string) error {
	var (
		at, name string
		state    api.InstanceState
		lock     instanceLock
	)
	if err := tx.QueryRowContext(ctx, "SELECT host_id, name, state, lock_reason, lock_op FROM instances WHERE id = ?", a.InstanceID).
		Scan(&at, &name, &state, &lock.reason, &lock.op); err != nil {
		return fmt.Errorf("read host of instance: %w", err)
	}
	switch {
	case state.OnShelf():
		return api.Errorf(api.CodeStateForbidden, "cannot resize volume %s: its instance %s is %s; detach the volume, or unshelve the instance first", v.Name, name, state).
			With("state", state)
	case at != hostID:
		return api.Errorf(api.CodeNotYourHost, "cannot resize volume %s from this host: its instance is on host %s", v.Name, a.Host)
	case a.State != api.AttachmentAttached:
		return api.Errorf(api.CodeStateForbidden, "cannot resize volume %s: its attachment %s is %s", v.Name, a.ID, a.State)
	}
	if err := lock.check("resize a volume of", name); err != nil {
		return err
	}
	return tx.CheckNoSplitBrain("resize volume "+v.Name+" of instance "+name, a.InstanceID, hostID)
}

func (tx resizeTx) resizedBy(ctx context.Context, volumeID string) (hostID string, err error) {
	if err := tx.QueryRowContext(ctx, "SELECT resize_host FROM volumes WHERE id = ?", volumeID).Scan(&hostID); err != nil {
		return "", fmt.Errorf("read who resizes: %w", err)
	}
	return hostID, nil
}

// EndResize ends a resize, and stores the size that the host has seen, if in has one. Only the
// host that began the resize may end it. If a fence of the host has ended the resize, nothing
// changes; the host then reports the size with Grow.
func (s *Volumes) EndResize(ctx context.Context, call Call, ref string, in api.VolumeResizeEnd) (api.Volume, error) {
	if err := validate.Required("op id", in.OpID); err != nil {
		return api.Volume{}, err
	}
	return Mutate(ctx, s.db, call, "volume.resize_end", []any{ref, in}, func(ctx context.Context, tx *Tx) (api.Volume, error) {
		resize := resizeTx{tx}
		hostID, err := tx.CheckHost(ctx, in.Host, in.Epoch)
		if err != nil {
			return api.Volume{}, err
		}
		v, err := tx.OwnVolume(ctx, ref, resizeVerb)
		if err != nil || v.ResizeOpID == "" || v.ResizeOpID != in.OpID {
			return v, err
		}
		if holder, err := resize.resizedBy(ctx, v.ID); err != nil || holder != hostID {
			return v, cmp.Or(err, error(api.Errorf(api.CodeNotYourHost, "cannot end the resize %s of volume %s: another host has begun it", in.OpID, v.Name)))
		}
		size := cmp.Or(in.SizeBytes, v.SizeBytes)
		if size < v.SizeBytes {
			return v, validate.Invalid("volume %s has %s, and %s is less: a volume is only grown", v.Name, humanize.ExactBytes(v.SizeBytes), humanize.ExactBytes(size))
		}
		if size > v.SizeBytes {
			if err := resize.setSize(ctx, v, size); err != nil {
				return v, err
			}
		}
		if err := tx.Exec(ctx, "UPDATE volumes SET resize_op = '', resize_host = '', updated_us = ? WHERE id = ?", tx.At.UnixMicro(), v.ID); err != nil {
			return v, err
		}
		if err := tx.auditVolume(ctx, v, api.Event{What: "volume.resize_end", From: fmt.Sprint(v.SizeBytes), To: fmt.Sprint(size), OpID: in.OpID}, nil); err != nil {
			return v, err
		}
		return volumeByID(ctx, tx, v.ID)
	})
}

// endAll ends the resizes of a fenced host, which cannot touch a volume any more. The next host
// that reads the image finds its size.
func (tx resizeTx) endAll(ctx context.Context, hostID string) error {
	return tx.Exec(ctx, "UPDATE volumes SET resize_op = '', resize_host = '' WHERE resize_host = ?", hostID)
}

// Grow stores the larger size of a volume's image that a host has seen, and returns the volume. It
// refuses a smaller size, which may lack a guest's data, and a volume in migration: dst has the
// old size.
func (s *Volumes) Grow(ctx context.Context, call Call, ref string, in api.VolumeGrow) (api.Volume, error) {
	return Mutate(ctx, s.db, call, "volume.grow", []any{ref, in}, func(ctx context.Context, tx *Tx) (api.Volume, error) {
		resize := resizeTx{tx}
		v, err := careTx{tx}.seen(ctx, ref, "change the size of", func(v api.Volume) string {
			return shell.Line("volferryctl", "volume", "set-size", v.Name, "--size", strconv.FormatInt(in.SizeBytes, 10), "--evidence", "TEXT")
		})
		if err != nil {
			return v, err
		}
		switch {
		case v.SizeBytes == in.SizeBytes:
			return v, nil
		case v.SizeBytes != in.FromBytes:
			return v, api.Errorf(api.CodeConflict, "volume %s has %s, no longer %s", v.Name, humanize.ExactBytes(v.SizeBytes), humanize.ExactBytes(in.FromBytes))
		case in.SizeBytes < v.SizeBytes:
			return v, validate.Invalid("volume %s has %s, and %s is less: a volume is only grown", v.Name, humanize.ExactBytes(v.SizeBytes), humanize.ExactBytes(in.SizeBytes))
		case v.Location.IsSlice(): // the image is larger than the volume anyway
			return v, api.Errorf(api.CodeStateForbidden, "volume %s is the beginning of what is at %s, and gets more of that by a resize alone", v.Name, v.Location.Path)
		case v.MigrationID != "":
			return v, MigrationActive(v, "change the size of")
		case v.Status != api.VolumeAvailable && v.Status != api.VolumeInUse:
			return v, NotAvailable(v, "change the size of")
		}
		if err := resize.setSize(ctx, v, in.SizeBytes); err != nil {
			return v, err
		}
		if err := tx.auditVolume(ctx, v, api.Event{What: "volume.grow", From: fmt.Sprint(v.SizeBytes), To: fmt.Sprint(in.SizeBytes)}, nil); err != nil {
			return v, err
		}
		return volumeByID(ctx, tx, v.ID)
	})
}

func (tx resizeTx) setSize(ctx context.Context, v api.Volume, sizeBytes int64) error {
	grown := v.Location.Resized(sizeBytes)
	if err := validate.Location("volume", grown); err != nil {
		return err
	}
	return tx.ExecAll(ctx,
		ledger.SQL("UPDATE locations SET size_bytes = ?, image_bytes = ? WHERE volume_id = ? AND migration_id IS NULL", sizeBytes, grown.ImageBytes, v.ID),
		ledger.SQL("UPDATE volumes SET size_changed_us = ?1, updated_us = ?1 WHERE id = ?2", tx.At.UnixMicro(), v.ID))
}
