// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

var oldestTrackingQEMU = hv.Version{Major: 6}

// CheckLive refuses a move while all guests write if this host could not track its guests' writes,
// or if the storage might lack these writes. For a move with all guests paused use CheckPaused.
func (c *Checks) CheckLive(ctx context.Context, in api.LiveCheck) error {
	v := in.LiveVolume
	if err := CheckLiveVolume(&v); err != nil {
		return err
	}
	if err := c.guards.Enforced(); err != nil {
		return api.Errorf(api.CodeStateForbidden, "cannot move volume %s while its guests write: guests that are off would have to be kept off, and %v; `volferryctl doctor` says what to do", v.VolumeName, err)
	}
	if err := c.CheckPlace(ctx, v.VolumeName, v.Src, v.Instances...); err != nil {
		return err
	}
	vol, err := c.registry.Volume(ctx, v.VolumeID)
	if err != nil {
		return err
	}
	if err := c.CheckRecorded(ctx, vol); err != nil {
		return err
	}
	elsewhere := slices.ContainsFunc(vol.Attachments, func(a api.Attachment) bool { return !slices.Contains(v.Instances, a.InstanceID) })
	for _, id := range v.Instances {
		att, err := AttachmentOf(&vol, id)
		if err != nil {
			return err
		}
		if err := c.checkLiveGuest(ctx, &v, att, elsewhere); err != nil {
			return err
		}
	}
	return nil
}

// checkLiveGuest is CheckLive for one guest. elsewhere: other hosts' guests have the volume too.
func (c *Checks) checkLiveGuest(ctx context.Context, v *api.LiveVolume, att api.Attachment, elsewhere bool) error {
	s := &move.Spec{VolumeID: v.VolumeID, VolumeName: v.VolumeName, Src: v.Src, Method: move.MethodLive}
	if err := c.CheckSource(ctx, s); err != nil {
		return err
	}
	dom, disk, err := c.CheckDisk(ctx, s, att)
	if err != nil {
		return err
	}
	if reason := Immovable(disk); reason != "" {
		return Unsupported(s, "disk %s of instance %s %s", s.Target, dom.Name, reason)
	}
	if disk.Top().Format != string(api.FormatRaw) {
		return Unsupported(s, "disk %s of instance %s is opened as %s, and only a raw one can be followed", s.Target, dom.Name, disk.Top().Format)
	}
	// Another host would not read data in the page cache of this host.
	if elsewhere && !disk.PastPageCache() {
		return Unsupported(s, "disk %s of instance %s has cache mode %q, and guests of other hosts have the volume too: they need cache='none' or 'directsync'", s.Target, dom.Name, disk.Cache)
	}
	if !dom.State.Active() {
		return nil
	}
	version, err := c.versions.QEMUVersion(ctx, dom.ID)
	if err == nil && version != (hv.Version{}) && version.Before(oldestTrackingQEMU) {
		return Unsupported(s, "instance %s runs in QEMU %s, and its writes can be followed from %s on", dom.Name, version, oldestTrackingQEMU)
	}
	if err == nil {
		err = c.domains.CanTrack(ctx, dom.ID, att.Device)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, hv.ErrBusy):
		return api.Errorf(api.CodeInstanceBusy, "cannot move volume %s while its guests write: %v; wait for its end", v.VolumeName, err).With("instance_id", dom.ID)
	case errors.Is(err, hv.ErrNotActive):
		return api.Errorf(api.CodeInstanceBusy, "cannot move volume %s: instance %s was stopped in this moment; try again", v.VolumeName, dom.Name).With("instance_id", dom.ID)
	case errors.Is(err, hv.ErrUnavailable):
		return request.NoHypervisor(err)
	}
	return Unsupported(s, "what instance %s writes cannot be followed: %v", dom.Name, err)
}

// CheckLiveVolume makes the checks of CheckLive that all calls of such a move need. dst has no
// path before it is made.
func CheckLiveVolume(in *api.LiveVolume) error {
	size := in.Src.SizeBytes
	if _, err := uuid.Parse(in.MigrationID); err != nil {
		return api.Errorf(api.CodeInvalidArgument, "migration_id is %.60q, which is no id", in.MigrationID)
	}
	switch {
	case in.Src.Format != api.FormatRaw || in.Dst.Format != api.FormatRaw:
		return api.Errorf(api.CodeUnsupportedDisk, "cannot move volume %s while its guests write: src and dst have to be raw", in.VolumeName)
	case in.Src.Path == "" || size <= 0 || size != in.Dst.SizeBytes:
		return api.Errorf(api.CodeInvalidArgument, "src and dst have to be places of one size")
	case in.UnitBytes != api.LiveUnitBytes(size):
		return api.Errorf(api.CodeInvalidArgument, "unit_bytes is %d; it must be %d for a volume of %d bytes", in.UnitBytes, api.LiveUnitBytes(size), size)
	}
	return nil
}

// AttachmentOf returns the attachment of a volume to an instance.
func AttachmentOf(vol *api.Volume, instanceID string) (api.Attachment, error) {
	i := slices.IndexFunc(vol.Attachments, func(a api.Attachment) bool { return a.InstanceID == instanceID })
	if i < 0 {
		return api.Attachment{}, api.Errorf(api.CodeConflict, "by the registry volume %s is not attached to instance %s", vol.Name, instanceID)
	}
	return vol.Attachments[i], nil
}
