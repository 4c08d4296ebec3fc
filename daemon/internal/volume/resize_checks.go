// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// checkVolume refuses a volume that must not be resized now, by the registry's word. The
// registry checks the same again when it is reserved.
func (in *resizeInput) checkVolume(vol api.Volume) error {
	switch {
	case vol.MigrationID != "":
		return in.cannot(api.CodeMigrationActive, "migration %s is moving it; complete or cancel that first", vol.MigrationID).With("migration_id", vol.MigrationID)
	case len(vol.Attachments) > 1:
		return in.cannot(api.CodeMultiattached, "it has %d attachments; detach all but one", len(vol.Attachments)).With("attachments", len(vol.Attachments))
	case in.SizeBytes < vol.SizeBytes:
		return in.cannot(api.CodeInvalidArgument, "it has %s, and %s is less: a volume is only made larger, for what lies at its end may be data", api.ExactBytes(vol.SizeBytes), api.ExactBytes(in.SizeBytes)).
			With("size_bytes", vol.SizeBytes)
	}
	switch vol.Status {
	case api.VolumeAvailable, api.VolumeInUse, api.VolumeResizing: // by an op of this host that has ended, perhaps
		return nil
	case api.VolumeCreating, api.VolumeReserved, api.VolumeDeleting, api.VolumeError:
	}
	return in.cannot(api.CodeVolumeNotAvailable, "it is %s", vol.Status).With("status", vol.Status)
}

// reachForResize makes sure that the volume is this host's to resize, and that whoever
// has it lets it be resized.
func (m *Manager) reachForResize(ctx context.Context, in *resizeInput, vol api.Volume, host api.Host) error {
	if len(vol.Attachments) == 0 {
		if err := m.checkReach(ctx, vol, host.ID); err != nil {
			return err
		}
		if err := m.env.Images.MayWrite(in.Location.Path); err != nil {
			return err
		}
		return m.env.checkUnused(ctx, vol.Location.Path, in.verdict())
	}
	a := vol.Attachments[0]
	in.InstanceID, in.InstanceName, in.Device = a.InstanceID, cmp.Or(a.InstanceName, a.InstanceID), a.Device
	switch {
	case a.Host == "":
		return in.cannot(api.CodeStateForbidden, "its instance %s is on no host; detach the volume, or unshelve the instance first", in.InstanceName)
	case a.Host != host.ID && a.Host != host.Name:
		return in.cannot(api.CodeNotYourHost, "its instance %s is on host %s; run this there, or ask the registry", in.InstanceName, a.Host)
	case a.State != api.AttachmentAttached:
		return in.cannot(api.CodeStateForbidden, "its attachment to instance %s is %s", in.InstanceName, a.State).With("attachment_id", a.ID)
	case a.Mode == api.ModeRO:
		return in.cannot(api.CodeStateForbidden, "instance %s has it read-only; detach it first", in.InstanceName).With("attachment_id", a.ID)
	}
	dom, err := m.env.HV.Domain(ctx, in.InstanceID)
	if errors.Is(err, hv.ErrNotFound) {
		return in.cannot(api.CodeNotFound, "its instance %s is not defined on this host", in.InstanceName)
	}
	if err != nil {
		return fmt.Errorf("read instance %s: %w", in.InstanceName, err)
	}
	return m.env.checkHolder(ctx, in, dom)
}

// checkSize looks at the image, and refuses what cannot be made of it.
func (m *Manager) checkSize(ctx context.Context, in *resizeInput) error {
	l := in.Location
	if l.Pool == "" && in.InstanceID == "" { // what a guest has it may have
		if err := m.rules.CheckPath(ctx, l.Path); err != nil {
			return err
		}
	}
	if err := location.CheckPool(ctx, m.env.HV, l, in.verdict()); err != nil {
		return err
	}
	info, err := m.env.inspect(ctx, in)
	if err != nil {
		return err
	}
	in.Block = info.Block
	switch found := info.SizeBytes; {
	case found < l.SizeBytes:
		return request.Shrunk(in.VolumeName, l, found)
	case found > in.SizeBytes:
		return in.cannot(api.CodeInvalidArgument, "its image %s has %s already, and %s is less; say that size, or a larger one", l.Path, api.ExactBytes(found), api.ExactBytes(in.SizeBytes)).
			With("found_bytes", found)
	case found < in.SizeBytes && in.Block:
		return in.tooSmall(found)
	case found < in.SizeBytes:
		return m.env.checkGrowth(in, in.SizeBytes-found)
	}
	return nil
}

// tooSmall refuses a block device that has to be made larger by whoever has made it.
func (in *resizeInput) tooSmall(found int64) error {
	return in.cannot(api.CodeUnsupportedDisk, "%s is a block device of %s, and a device is made larger where it was made (of LVM with `lvextend --size %db %s`); do that, and ask again for the size that it has then: its guest and the registry get it",
		in.Location.Path, api.ExactBytes(found), in.SizeBytes, in.Location.Path).With("found_bytes", found).With("size_bytes", in.SizeBytes)
}

// checkHolder refuses a volume whose instance does not have it as the registry says, or
// whose disk cannot be made larger. Errors are typed for the runner.
func (e *env) checkHolder(ctx context.Context, in *resizeInput, dom *hv.Domain) error {
	if err := request.AtHome(in.verdict(), dom); err != nil {
		return err
	}
	switch {
	case dom.State == hv.StateOther:
		return in.cannot(api.CodeStateForbidden, "instance %s is neither running, paused nor off; try again when it is", dom.Name)
	case dom.ManagedSave:
		return in.cannot(api.CodeStateForbidden, "instance %s is saved, and would wake with the disk as it was; start it first, or give up what it has in memory (virsh managedsave-remove %s)", dom.Name, dom.Name)
	case dom.State.Active() && dom.LiveDisk(in.Device) == nil, !dom.State.Active() && dom.ConfigDisk(in.Device) == nil:
		return in.chainChanged(dom)
	}
	for _, disk := range []*hv.Disk{dom.LiveDisk(in.Device), dom.ConfigDisk(in.Device)} {
		if disk == nil { // of a transient domain, or of a process that is gone
			continue
		}
		if err := in.checkDisk(disk, dom); err != nil {
			return err
		}
	}
	if err := e.checkNamed(ctx, in.Location.Path, dom.ID, in.verdict()); err != nil {
		return err
	}
	if dom.State.Active() {
		return nil // QEMU has it open, and makes it larger
	}
	if err := e.Images.MayWrite(in.Location.Path); err != nil {
		return err
	}
	return e.checkHeld(ctx, in.Location.Path, in.verdict())
}

// checkDisk refuses a disk that is not the volume's image alone, or that has a setting by
// which a larger image would not be a larger disk.
func (in *resizeInput) checkDisk(disk *hv.Disk, dom *hv.Domain) error {
	same, err := location.SameImage(disk.Top().Path, in.Location.Path)
	switch {
	case err != nil:
		return in.cannot(api.CodeStateForbidden, "nobody can tell whether disk %s of instance %s is at %s: %v", disk.Target, dom.Name, in.Location.Path, err)
	case !same || len(disk.Chain) != 1:
		return in.chainChanged(dom)
	case disk.Mirror != nil:
		return in.cannot(api.CodeInstanceBusy, "a block job works on disk %s of instance %s; try again when it is over (virsh blockjob %s %s)", disk.Target, dom.Name, dom.Name, disk.Target)
	case disk.Slices:
		return in.cannot(api.CodeUnsupportedDisk, "disk %s of instance %s is a slice of its image (<slices>), which would stay as large as it is", disk.Target, dom.Name)
	case disk.Encrypted:
		return in.cannot(api.CodeUnsupportedDisk, "disk %s of instance %s is encrypted by QEMU, so that the size of its image is not the size of the disk", disk.Target, dom.Name)
	case disk.ReadOnly:
		return in.cannot(api.CodeStateForbidden, "instance %s has it read-only; detach it first", dom.Name)
	case disk.Transient:
		return in.cannot(api.CodeUnsupportedDisk, "disk %s of instance %s is transient: its guest writes elsewhere", disk.Target, dom.Name)
	}
	return nil
}

func (in *resizeInput) chainChanged(dom *hv.Domain) error {
	return in.cannot(api.CodeChainChanged, "disk %s of instance %s is not on %s alone; `volferryctl volume which %s` says what it is on", in.Device, dom.Name, in.Location.Path, in.VolumeName)
}

// inspect reads size and kind of the image.
func (e *env) inspect(ctx context.Context, in *resizeInput) (image.Info, error) {
	info, err := e.Images.Inspect(ctx, in.Location.Path, in.Location.Format)
	if errors.Is(err, image.ErrAbsent) {
		return info, in.cannot(api.CodeNotFound, "there is nothing at %s on this host", in.Location.Path)
	}
	return info, err
}

// checkGrowth wants room for all that is added, as for a new volume: a guest that fills
// its disk must not find the filesystem full.
func (e *env) checkGrowth(in *resizeInput, addedBytes int64) error {
	dir := filepath.Dir(in.Location.Path)
	free, err := e.Images.FreeBytes(dir)
	if err != nil || free >= addedBytes {
		return err
	}
	return in.cannot(api.CodeNoSpace, "the filesystem of %s has %s free, and the volume may grow by %s", dir, api.ExactBytes(free), api.ExactBytes(addedBytes)).
		With("free_bytes", free).With("needed_bytes", addedBytes)
}
