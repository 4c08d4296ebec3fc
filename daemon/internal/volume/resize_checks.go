// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/medium"
	"github.com/volferry/volferry/internal/shell"
)

func (in *resizeInput) checkVolume(vol api.Volume) error {
	switch kind := medium.Of(vol.Location.Path); {
	case vol.MigrationID != "":
		return in.cannot(api.CodeMigrationActive, "migration %s is moving it; complete or cancel that first", vol.MigrationID).With("migration_id", vol.MigrationID)
	case len(vol.Attachments) > 1:
		return in.cannot(api.CodeMultiattached, "it has %d attachments; detach all but one", len(vol.Attachments)).With("attachments", len(vol.Attachments))
	case vol.Location.IsLinkedClone():
		return in.cannot(api.CodeUnsupportedDisk, "it is a linked clone over %s; move it first (volferryctl volume migrate), which makes it a volume of its own", vol.Location.Backing.Images()[0].Path)
	case !kind.Resizable:
		return in.cannot(api.CodeUnsupportedDisk, "it is at %s, and %s is not made larger from here; move it to a file or a device first (volferryctl volume migrate)", vol.Location.Path, kind.Name)
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

// checkHolder refuses a volume if its instance contradicts the registry, or if its disk cannot
// grow.
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
	if err := e.Files.MayWrite(in.Location.Path); err != nil {
		return err
	}
	return e.checkHeld(ctx, in.Location.Path, in.verdict())
}

// checkDisk refuses a disk that is not exactly the volume's image, or that hides the image's
// growth from the guest.
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
	case disk.Encrypted: // isOn has refused a disk with a LUKSSecret
		return in.cannot(api.CodeUnsupportedDisk, "disk %s of instance %s is encrypted by QEMU, so that the size of its image is not the size of the disk", disk.Target, dom.Name)
	case disk.ReadOnly:
		return in.cannot(api.CodeStateForbidden, "instance %s has it read-only; detach it first", dom.Name)
	case disk.Transient:
		return in.cannot(api.CodeUnsupportedDisk, "disk %s of instance %s is transient: its guest writes elsewhere", disk.Target, dom.Name)
	}
	return nil
}

// isOn reports whether a disk is exactly the volume, with its old size. After an interrupted
// resize the disk may have a larger part of the image.
func (in *resizeInput) isOn(disk *hv.Disk) bool {
	return location.HasVolume(disk, in.part().on(disk), disk.Top().Type == hv.SourceBlock)
}
