// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/daemon/internal/witness"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/shell"
)

// Spec makes all checks that are possible before a change, and returns the spec of a request.
func (c *Checks) Spec(ctx context.Context, vol api.Volume, target api.MigrationTarget) (*move.Spec, error) {
	if err := CheckTarget(target); err != nil {
		return nil, err
	}
	host, err := c.host(ctx)
	if err != nil {
		return nil, err
	}
	s := &move.Spec{
		MigrationID: uuid.NewString(), VolumeID: vol.ID, VolumeName: vol.Name,
		Host: host.ID, HostName: host.Name, Epoch: host.Epoch, Generation: vol.Generation, Src: vol.Location, ToType: target.ToType,
		ExternalCopy: target.ExternalCopy, CopyOptions: target.CopyOptions, DeleteSource: target.DeleteSource, Checkpoints: target.Checkpoints,
		Method: move.MethodOffline,
	}
	if err := checkVolume(vol); err != nil {
		return nil, err
	}
	if err := c.which.CheckReach(ctx, vol, host); err != nil {
		return nil, err
	}
	if err := c.CheckRecorded(ctx, vol); err != nil {
		return nil, err
	}
	if vol.Unheld() { // an attached src is checked with its instance
		if err := c.CheckPlace(ctx, vol.Name, vol.Location); err != nil {
			return nil, err
		}
	}
	if err := c.CheckSource(ctx, s); err != nil {
		return nil, err
	}
	var dom *hv.Domain
	var disk *hv.Disk
	if !vol.Unheld() {
		if dom, disk, err = c.checkInstance(ctx, s, vol.Attachments[0], target); err != nil {
			return nil, err
		}
	}
	if err := c.look.CheckSrcNotInUse(ctx, s, s.InstanceID); err != nil {
		return nil, err
	}
	if err := c.checkSrcNotLocked(ctx, s); err != nil {
		return nil, err
	}
	if err := checkMethod(s, &target); err != nil {
		return nil, err
	}
	if err := c.ResolveDestination(ctx, s, target); err != nil {
		return nil, err
	}
	if err := checkFits(s, disk); err != nil {
		return nil, err
	}
	if dom != nil {
		if err := c.look.CheckSwitchable(ctx, s, dom.State); err != nil {
			return nil, err
		}
	}
	if err := c.CheckQcow2(ctx, s, dom); err != nil {
		return nil, err
	}
	if err := c.CheckUneven(s, disk); err != nil {
		return nil, err
	}
	if err := c.checkDeletable(ctx, s); err != nil {
		return nil, err
	}
	if err := ChooseVerify(s); err != nil {
		return nil, err
	}
	if s.Method == move.MethodOverlay {
		s.Overlay = c.OverlayPath(s.MigrationID)
		if err := c.CheckOverlaySpace(ctx, s); err != nil {
			return nil, err
		}
	}
	if err := c.CheckWritable(s); err != nil {
		return nil, err
	}
	if err := c.look.CheckNotDenied(ctx, s); err != nil {
		return nil, err
	}
	if err := c.look.CheckReachable(ctx, s); err != nil {
		return nil, err
	}
	return s, c.CheckFilesystems(ctx, s, disk)
}

// CheckWritable refuses a move if this program may not write in the directory of an image: it
// could not finish or cancel the move.
func (c *Checks) CheckWritable(s *move.Spec) error {
	if err := c.dirs.MayWrite(s.Dst.Path); err != nil {
		return err
	}
	// A cancel folds the overlay into src.
	if s.Method == move.MethodOverlay || s.DeleteSource {
		return c.dirs.MayWrite(s.Src.Path)
	}
	return nil
}

// CheckTarget refuses a target that is invalid by itself.
func CheckTarget(t api.MigrationTarget) error {
	if err := t.Check(); err != nil {
		return err
	}
	if t.PauseAll {
		return api.Errorf(api.CodeInvalidArgument, "--pause-all is no way to move one attachment; say it of the volume: volferryctl volume migrate VOLUME --pause-all")
	}
	if t.Method == api.MethodLive {
		return api.Errorf(api.CodeInvalidArgument, "method live is no way to move one attachment; say it of the volume")
	}
	return nil
}

// checkVolume checks the registry's state of the volume. The registry repeats these checks when it
// grants the lock (checkMigratable of its package store). Its checks decide: add a new rule there
// too.
func checkVolume(vol api.Volume) error {
	if n := len(vol.Attachments); n > 1 && !vol.Unheld() {
		return api.Errorf(api.CodeMultiattached, "cannot migrate volume %s: it has %d attachments; detach all but one, or move it with --live-shared, while its guests write, or with --pause-all, which saves and restores them", vol.Name, n)
	}
	if vol.Status != api.VolumeAvailable && vol.Status != api.VolumeInUse {
		return api.Errorf(api.CodeVolumeNotAvailable, "cannot migrate volume %s: it is %s", vol.Name, vol.Status)
	}
	return nil
}

// CheckSource checks that src matches the registry's location, and needs no other files.
func (c *Checks) CheckSource(ctx context.Context, s *move.Spec) error {
	if s.LedByRegistry() && !s.SrcKind().Led {
		return Unsupported(s, "it is at %s, which only its one guest's host moves: not with its guests paused, and not while several write", s.Src.Path)
	}
	if s.LedByRegistry() && s.Src.IsLUKS() {
		return Unsupported(s, "it is encrypted by QEMU (LUKS), and such a volume moves only by itself, with its one guest: not with its guests paused, and not while several write")
	}
	if err := c.cfg.Rules.CheckImages(s.Src); err != nil {
		return look.HVRefusal(image.Prefixed("cannot migrate volume "+s.VolumeName, err))
	}
	if err := c.checkBases(ctx, s); err != nil {
		return err
	}
	info, err := c.images.Inspect(ctx, s.Src)
	if errors.Is(err, image.ErrAbsent) {
		return api.Errorf(api.CodeNotFound, "volume %s is not at %s, where the registry says it is", s.VolumeName, s.Src.Path)
	}
	if err != nil {
		return look.HVRefusal(err) // of libvirt, which gives a cluster's key
	}
	s.SrcBlock = info.Block
	if s.SrcPrint, err = c.images.Fingerprint(ctx, s.Src.Path); err != nil {
		return fmt.Errorf("look at src: %w", err)
	}
	if s.SrcRights, err = c.images.Rights(ctx, s.Src.Path); err != nil {
		return fmt.Errorf("look at src: %w", err)
	}
	s.Src.SizeBytes, err = request.TakeSize(ctx, c.registry, s.VolumeID, s.VolumeName, s.Src, info.SizeBytes)
	return err
}

func (c *Checks) checkInstance(ctx context.Context, s *move.Spec, att api.Attachment, target api.MigrationTarget) (*hv.Domain, *hv.Disk, error) {
	dom, disk, err := c.CheckDisk(ctx, s, att)
	if err != nil {
		return nil, nil, err
	}
	if err := c.chooseMethod(ctx, s, dom, disk, target.Method); err != nil {
		return nil, nil, err
	}
	return dom, disk, c.checkUnwitnessed(ctx, s, dom, disk, target)
}

// CheckDisk checks an attachment's instance and disk, and sets both in the spec. It refuses a disk
// with another chain than src, or with a block job.
func (c *Checks) CheckDisk(ctx context.Context, s *move.Spec, att api.Attachment) (*hv.Domain, *hv.Disk, error) {
	dom, err := c.domains.Domain(ctx, att.InstanceID)
	switch {
	case errors.Is(err, hv.ErrNotFound):
		return nil, nil, api.Errorf(api.CodeNotFound, "instance %s is not defined on this host", att.InstanceID)
	case errors.Is(err, hv.ErrUnavailable):
		return nil, nil, request.NoHypervisor(err)
	case err != nil:
		return nil, nil, fmt.Errorf("read instance %s: %w", att.InstanceID, err)
	}
	s.InstanceID, s.InstanceName, s.Target = dom.ID, dom.Name, att.Device
	s.SrcAttachmentID, s.DstAttachmentID = att.ID, uuid.NewString()
	if err := checkDomain(s, dom); err != nil {
		return nil, nil, err
	}
	disk := dom.ConfigDisk(att.Device)
	if disk == nil {
		return nil, nil, api.Errorf(api.CodeChainChanged, "instance %s has no disk %s any more; was it detached behind Volferry's back?", dom.Name, att.Device)
	}
	if move.PositionOf(s, disk) != move.OnSrc || (dom.State.Active() && move.PositionOf(s, dom.LiveDisk(att.Device)) != move.OnSrc) {
		return nil, nil, api.Errorf(api.CodeChainChanged, "disk %s of instance %s is not %s alone, as the registry has it; `%s` shows what is known",
			att.Device, dom.Name, s.Src.Path, shell.Line("volferryctl", "volume", "which", s.VolumeName))
	}
	if err := c.checkOpen(ctx, s, dom); err != nil {
		return nil, nil, err
	}
	if err := c.checkJob(ctx, s, dom); err != nil {
		return nil, nil, err
	}
	return dom, disk, nil
}

// checkOpen refuses a src that its guest's process does not have open: the path has another image
// now, which would be copied instead, or libvirt shows an old chain.
func (c *Checks) checkOpen(ctx context.Context, s *move.Spec, dom *hv.Domain) error {
	if !dom.State.Active() || !s.SrcKind().Witnessed {
		return nil
	}
	held, err := witness.Look(ctx, c.processes, dom.ID, dom.Name, s.Src.Path)
	if err != nil {
		return api.Errorf(api.CodeHypervisorUnavailable, "cannot see what the process of instance %s has open: %v", dom.Name, err)
	}
	if !held.Process || held.Open {
		return nil
	}
	return api.Errorf(api.CodeChainChanged, "cannot migrate volume %s: libvirt has disk %s of instance %s on %s, and by the kernel's word its process does not have open what is there now: "+
		"another image has that name by now, or libvirt has lost the right one. Do not stop the instance before the right image is at this path again; `%s` shows what is known",
		s.VolumeName, s.Target, dom.Name, s.Src.Path, shell.Line("volferryctl", "volume", "which", s.VolumeName))
}

func checkDomain(s *move.Spec, dom *hv.Domain) error {
	switch {
	case !dom.Persistent:
		return Unsupported(s, "instance %s is transient (it has no persistent definition)", dom.Name)
	case dom.State == hv.StateOther:
		return api.Errorf(api.CodeStateForbidden, "cannot migrate volume %s: %s", s.VolumeName, request.Unsettled(dom))
	case dom.Snapshots > 0:
		return Unsupported(s, "instance %s has %s in libvirt, made of its present disks; `%s` has the names, and `%s` deletes one (with --metadata libvirt only forgets it, and its images stay)",
			dom.Name, humanize.Count(dom.Snapshots, "snapshot"), shell.Line("virsh", "snapshot-list", "--", dom.Name), shell.Line("virsh", "snapshot-delete", "--", dom.Name, "NAME"))
	case dom.Checkpoints > 0:
		return Unsupported(s, "instance %s has %s in libvirt, and a move would lose what is there; `%s` has the names, and `%s` deletes one (if its bitmap is gone, that fails: add --metadata)",
			dom.Name, humanize.Count(dom.Checkpoints, "checkpoint"), shell.Line("virsh", "checkpoint-list", "--", dom.Name), shell.Line("virsh", "checkpoint-delete", "--", dom.Name, "NAME"))
	case dom.ManagedSave:
		return api.Errorf(api.CodeStateForbidden, "cannot migrate volume %s: instance %s has a managed save image, which names its present disks; start it or run `%s`",
			s.VolumeName, dom.Name, shell.Line("virsh", "managedsave-remove", "--", dom.Name))
	}
	return request.AtHome("cannot migrate volume "+s.VolumeName, dom)
}

func (c *Checks) checkJob(ctx context.Context, s *move.Spec, dom *hv.Domain) error {
	if !dom.State.Active() {
		return nil
	}
	live := dom.LiveDisk(s.Target)
	job, err := c.domains.Job(ctx, dom.ID, s.Target)
	switch {
	case errors.Is(err, hv.ErrUnavailable):
		return request.NoHypervisor(err)
	case errors.Is(err, hv.ErrNotActive):
		return api.Errorf(api.CodeInstanceBusy, "cannot migrate volume %s: instance %s was stopped in this moment; try again", s.VolumeName, dom.Name)
	case err != nil:
		return fmt.Errorf("read the block job of %s: %w", s.Target, err)
	}
	if job != nil && job.Kind == hv.JobBackup {
		return api.Errorf(api.CodeInstanceBusy, "cannot migrate volume %s: somebody has a backup made of disk %s of instance %s; wait for its end, or end it: `%s`",
			s.VolumeName, s.Target, dom.Name, shell.Line("virsh", "domjobabort", "--", dom.Name))
	}
	if job != nil || (live != nil && live.Mirror != nil) {
		return api.Errorf(api.CodeInstanceBusy, "cannot migrate volume %s: a block job that Volferry did not start runs on disk %s of instance %s; `%s` shows it: wait for its end, or end it with --abort in place of --info",
			s.VolumeName, s.Target, dom.Name, shell.Line("virsh", "blockjob", "--info", "--", dom.Name, s.Target))
	}
	return nil
}

// ChooseVerify sets Verify if it is empty. A copy of a frozen src is read back. A mirror's src and
// dst can be compared only with the guest paused, so that must be requested, and only if both are
// raw, since QEMU has the locks of a qcow2 image.
func ChooseVerify(s *move.Spec) error {
	switch {
	case s.Method != move.MethodMirror && s.Verify == "":
		s.Verify = move.VerifyFull
	case s.Method != move.MethodMirror:
	case s.Verify == "" && s.DeleteSource:
		return api.Errorf(api.CodeInvalidArgument, "--delete-source needs --verify full, which a mirror is not by itself: both sides are then compared with the guest paused; say --verify full, or delete the source afterwards")
	case s.Verify == "":
		s.Verify = move.VerifyNone
	case s.Verify == move.VerifyFull && (s.Src.Format != api.FormatRaw || s.Dst.Format != api.FormatRaw):
		return api.Errorf(api.CodeInvalidArgument, "a mirror can be verified only from raw to raw, and this is %s to %s; say --verify none", s.Src.Format, s.Dst.Format)
	}
	return nil
}
