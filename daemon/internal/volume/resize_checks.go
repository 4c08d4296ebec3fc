// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/medium"
	"github.com/volferry/volferry/internal/shell"
)

// checkVolume refuses a volume that the registry would not reserve for a resize now.
func (in *resizeInput) checkVolume(vol api.Volume) error {
	switch {
	case vol.MigrationID != "":
		return in.cannot(api.CodeMigrationActive, "migration %s is moving it; complete or cancel that first", vol.MigrationID).With("migration_id", vol.MigrationID)
	case len(vol.Attachments) > 1:
		return in.cannot(api.CodeMultiattached, "it has %d attachments; detach all but one", len(vol.Attachments)).With("attachments", len(vol.Attachments))
	case vol.Location.IsLinkedClone():
		return in.cannot(api.CodeUnsupportedDisk, "it is a linked clone over %s; move it first (volferryctl volume migrate), which makes it a volume of its own", vol.Location.Backing.Images()[0].Path)
	case medium.IsNetwork(vol.Location.Path):
		return in.cannot(api.CodeUnsupportedDisk, "it is at %s, and %s is not made larger from here; move it to a file or a device first (volferryctl volume migrate)", vol.Location.Path, medium.AddressKind(vol.Location.Path))
	case vol.Location.IsLUKS():
		return in.cannot(api.CodeUnsupportedDisk, "it is encrypted by QEMU (LUKS), so that the size of its image is not the size of the disk")
	case in.SizeBytes < vol.SizeBytes:
		return in.cannot(api.CodeInvalidArgument, "it has %s, and %s is less: a volume is only made larger, for what lies at its end may be data", humanize.ExactBytes(vol.SizeBytes), humanize.ExactBytes(in.SizeBytes)).
			With("size_bytes", vol.SizeBytes)
	}
	switch vol.Status {
	case api.VolumeAvailable, api.VolumeInUse, api.VolumeResizing: // the latter perhaps by an ended op of this host
		return nil
	case api.VolumeCreating, api.VolumeReserved, api.VolumeDeleting, api.VolumeError:
	}
	return in.cannot(api.CodeVolumeNotAvailable, "it is %s", vol.Status).With("status", vol.Status)
}

// tooSmall returns the refusal of a device that only its owner can extend.
func (in *resizeInput) tooSmall(found int64) error {
	return in.cannot(api.CodeUnsupportedDisk, "%s is a block device of %s, and a device is made larger where it was made (of LVM with `%s`); do that, and ask again for the size that it has then: its guest and the registry get it",
		in.Location.Path, humanize.ExactBytes(found), shell.ExtendVolume(in.Location.Path, in.SizeBytes)).With("found_bytes", found).With("size_bytes", in.SizeBytes)
}

// checkHolder refuses a volume if its instance contradicts the registry, or its disk cannot grow.
// Errors are typed for the runner.
func (e *env) checkHolder(ctx context.Context, in *resizeInput, dom *hv.Domain) error {
	if err := request.AtHome(in.verdict(), dom); err != nil {
		return err
	}
	switch {
	case dom.State == hv.StateOther:
		return in.cannot(api.CodeStateForbidden, "%s", request.Unsettled(dom))
	case dom.ManagedSave:
		return in.cannot(api.CodeStateForbidden, "instance %s is saved, and would wake with the disk as it was; start it first, or give up what it has in memory (`%s`)", dom.Name, shell.Line("virsh", "managedsave-remove", "--", dom.Name))
	case dom.State.Active() && dom.LiveDisk(in.Device) == nil, !dom.State.Active() && dom.ConfigDisk(in.Device) == nil:
		return in.chainChanged(dom)
	}
	for _, disk := range []*hv.Disk{dom.LiveDisk(in.Device), dom.ConfigDisk(in.Device)} {
		if disk == nil { // the domain is transient, or its process has ended
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
		return nil // QEMU has it open, and grows it
	}
	if err := e.Images.MayWrite(in.Location.Path); err != nil {
		return err
	}
	return e.checkHeld(ctx, in.Location.Path, in.verdict())
}

// checkDisk refuses a disk that is not exactly the volume's image, or hides the image's growth
// from the guest.
func (in *resizeInput) checkDisk(disk *hv.Disk, dom *hv.Domain) error {
	same, err := location.SameImage(disk.Top().Path, in.Location.Path)
	switch {
	case err != nil:
		return in.cannot(api.CodeStateForbidden, "nobody can tell whether disk %s of instance %s is at %s: %v", disk.Target, dom.Name, in.Location.Path, err)
	case !same || !in.isOn(disk):
		return in.chainChanged(dom)
	case disk.Mirror != nil:
		return in.cannot(api.CodeInstanceBusy, "a block job works on disk %s of instance %s; try again when it is over (`%s`)", disk.Target, dom.Name, shell.Line("virsh", "blockjob", "--", dom.Name, disk.Target))
	case disk.Slices:
		return in.cannot(api.CodeUnsupportedDisk, "disk %s of instance %s is a slice of its image (<slices>) that is not its beginning, which would stay as large as it is", disk.Target, dom.Name)
	case disk.Encrypted || disk.IsLUKS():
		return in.cannot(api.CodeUnsupportedDisk, "disk %s of instance %s is encrypted by QEMU, so that the size of its image is not the size of the disk", disk.Target, dom.Name)
	case disk.ReadOnly:
		return in.cannot(api.CodeStateForbidden, "instance %s has it read-only; detach it first", dom.Name)
	case disk.Transient:
		return in.cannot(api.CodeUnsupportedDisk, "disk %s of instance %s is transient: its guest writes elsewhere", disk.Target, dom.Name)
	}
	return nil
}

// isOn reports whether a disk is exactly on the volume, with the old size or, after an unfinished
// op, with a larger part of the image.
func (in *resizeInput) isOn(disk *hv.Disk) bool {
	l := in.Location
	switch has := disk.Top().SliceBytes; {
	case !l.IsSlice():
	case has == 0:
		l.ImageBytes = 0 // the disk is the whole image
	case has > l.SizeBytes:
		l.SizeBytes = has
	}
	return location.HasVolume(disk, l, disk.Top().Type == hv.SourceBlock)
}

// grown returns the location with the new size, as the registry will have it.
func (in *resizeInput) grown() api.Location {
	l := in.Location
	if l.SizeBytes = in.SizeBytes; l.ImageBytes <= l.SizeBytes {
		l.ImageBytes = 0 // the volume is the whole image
	}
	return l
}

func (in *resizeInput) chainChanged(dom *hv.Domain) error {
	return in.cannot(api.CodeChainChanged, "disk %s of instance %s is not on %s alone; `%s` says what it is on", in.Device, dom.Name, in.Location.Path, shell.Line("volferryctl", "volume", "which", in.VolumeName))
}

func (e *env) inspect(ctx context.Context, in *resizeInput) (image.Info, error) {
	info, err := e.Images.Inspect(ctx, in.Location)
	if errors.Is(err, image.ErrAbsent) {
		return info, in.cannot(api.CodeNotFound, "there is nothing at %s on this host", in.Location.Path)
	}
	return info, err
}

// checkGrowth refuses a filesystem without space for all added bytes: a guest that fills its disk
// must not find the filesystem full.
func (e *env) checkGrowth(in *resizeInput, addedBytes int64) error {
	dir := filepath.Dir(in.Location.Path)
	if err := e.Images.CheckFileBytes(in.Location.Path, in.SizeBytes); err != nil {
		return image.Refused("resize volume "+in.VolumeName, dir, err)
	}
	free, err := e.Images.FreeBytes(dir)
	if err != nil || free >= addedBytes {
		return err
	}
	return in.cannot(api.CodeNoSpace, "the filesystem of %s has %s free, and the volume may grow by %s", dir, humanize.ExactBytes(free), humanize.ExactBytes(addedBytes)).
		With("free_bytes", free).With("needed_bytes", addedBytes)
}
