// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/atomicfile"
	"github.com/volferry/volferry/internal/shell"
)

const waitSave = "save"

type woken struct {
	Remark string `json:"remark,omitempty"`
}

// wake restores an instance from its save image, paused, with the disk that its definition names.
// It may be repeated. remark describes a lost save image. The guard stays until the save image is
// removed.
func (e *Env) wake(ctx context.Context, in *PauseInput, was SavedState) (remark string, err error) {
	dom, err := e.subject.Domain(ctx, in.InstanceID)
	switch {
	case err != nil:
		return "", err
	case dom == nil:
		return "", in.needsOperator(errors.New("it is not defined on this host any more"))
	case dom.State == hv.StateOther:
		return "", op.WaitFor(waitSave, api.Errorf(api.CodeInstanceBusy, "instance %s is neither running, paused nor stopped", in.InstanceName))
	case dom.State.Active():
		return e.awake(in, dom)
	}
	there, err := SaveImageExists(in)
	switch {
	case err != nil:
		return "", in.needsOperator(err)
	case there && !was.hadMemory():
		return "", in.needsOperator(errors.New("the journal does not know that it was saved, and what it was then"))
	case !was.hadMemory():
		return "", nil
	case !there:
		remark = in.saveImageGone(was)
		e.log.Warn("an instance is not as it was", "instance", in.InstanceName, "why", remark)
		return remark, nil
	}
	if !uses(dom.ConfigDisk(in.Device), in.Location.Path) {
		return "", in.needsOperator(in.chainChanged("persistent definition"))
	}
	if err := e.sameDisks(ctx, in, dom); err != nil {
		return "", err
	}
	if err := e.othersOnTheirDevices(ctx, in); err != nil {
		return "", in.needsOperator(err)
	}
	return "", e.wakeFromFile(ctx, in, dom)
}

func (in *PauseInput) saveImageGone(was SavedState) string {
	return fmt.Sprintf("instance %s was %s and is stopped now: its saved memory %s is not there", in.InstanceName, was.State, in.Memory)
}

func (e *Env) sameDisks(ctx context.Context, in *PauseInput, dom *hv.Domain) error {
	saved, err := e.saves.SavedDisks(ctx, in.InstanceID, in.Memory)
	switch {
	case errors.Is(err, hv.ErrUnavailable):
		return request.HV(err)
	case err != nil:
		return in.needsOperator(err)
	}
	if what := otherDisks(saved, dom.Config, in.Device); what != "" {
		return in.needsOperator(api.Errorf(api.CodeChainChanged, "its disk %s in its definition, which was changed while it was saved; it would be restored with the first", what))
	}
	return nil
}

// othersOnTheirDevices refuses to restore a guest if the path of another of its volumes leads to
// another device, as after a reboot: the guest's memory belongs to the previous device's data. The
// copy checks the moving volume.
func (e *Env) othersOnTheirDevices(ctx context.Context, in *PauseInput) error {
	atts, err := e.subject.RestingOf(ctx, in.InstanceID)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(atts, func(a api.Attachment) bool { return a.VolumeID == in.VolumeID })
	return e.subject.OnItsDevices(ctx, "wake", in.InstanceName, others)
}

// wakeFromFile restores an instance that is off. The guard prevents a boot without the RAM; a
// start token permits only the restore.
func (e *Env) wakeFromFile(ctx context.Context, in *PauseInput, dom *hv.Domain) error {
	if err := e.movingGuests.MayStart(ctx, in.InstanceID); err != nil { // because of its other volumes
		return in.needsOperator(err)
	}
	if err := e.permit(ctx, in, api.PermitRestore); err != nil {
		return err
	}
	// libvirt opens the image by path, perhaps long after StepConnect checked the path.
	if err := in.placeRefused(e.locations.CheckImages(in.Location)); err != nil {
		return err
	}
	if err := e.guards.Set(in.InstanceID, in.Owner(), in.reason()); err != nil {
		return err
	}
	token, err := e.guards.IssueStartToken(in.InstanceID, in.Owner())
	if err != nil {
		return err
	}
	err = e.saves.RestoreMemory(ctx, in.InstanceID, in.Memory, hv.RestoreOptions{
		Chains: map[string][]hv.Image{in.Device: dom.ConfigDisk(in.Device).Chain}, Paused: true, StartToken: token,
	})
	if err := e.guards.RevokeStartToken(in.InstanceID); err != nil {
		return err
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, hv.ErrUnavailable), errors.Is(err, hv.ErrBusy):
		return request.HV(err)
	case errors.Is(err, hv.ErrActive):
		return op.Retry(request.BusyDelay, err) // another call was first; the next attempt checks again
	case errors.Is(err, hv.ErrGuarded):
		if old := e.guards.HookKnowsStartTokens(); old != nil {
			err = fmt.Errorf("%w; %w", err, old)
		}
	}
	return in.needsOperator(err)
}

func (in *PauseInput) placeRefused(err error) error {
	var refused *api.Error
	switch {
	case api.CodeOf(err) == api.CodeHypervisorUnavailable:
		return request.AwaitHypervisor(err)
	case errors.As(err, &refused):
		return in.needsOperator(refused)
	}
	return err
}

// awake checks an instance that already has a process. If another program has resumed the guest,
// awake renames the outdated save image, so that it is never restored.
func (e *Env) awake(in *PauseInput, dom *hv.Domain) (remark string, err error) {
	if !uses(dom.LiveDisk(in.Device), in.Location.Path) {
		return "", in.needsOperator(in.chainChanged("running domain"))
	}
	there, err := SaveImageExists(in)
	if err != nil {
		return "", err
	}
	if there && dom.State == hv.StateRunning {
		aside := in.Memory + ".unused"
		if err := errors.Join(os.Rename(in.Memory, aside), atomicfile.SyncDir(e.cfg.SaveDir)); err != nil {
			return "", err
		}
		remark = fmt.Sprintf("instance %s was started by somebody else; its saved memory is in %s and must not be restored, since the disks have gone on", in.InstanceName, aside)
		e.log.Warn("an instance is not as it was", "instance", in.InstanceName, "why", remark)
	}
	return remark, e.guards.RevokeStartToken(in.InstanceID)
}

// needsOperator returns the error for an instance that cannot be restored, and stays saved and
// guarded. The error names the instance's files, and the commands for both cases: only the
// registry knows whether the move is being completed or cancelled.
func (in *PauseInput) needsOperator(err error) error {
	return api.Errorf(api.CodeNeedsOperator,
		"cannot restore instance %s: %v; its memory is in %s, its volume %s at %s; once that is right, ask again (`%s`; of a move that is being taken back `%s`); to give its memory up, say so to that call (--discard-memory), or remove the file first (`%s`): the instance is then restored stopped, as after a power cut",
		in.InstanceName, err, in.Memory, in.VolumeName, in.Location.Path, shell.Line("volferryctl", "migration", "complete", in.MigrationID),
		shell.Line("volferryctl", "migration", "cancel", in.MigrationID), shell.Line("rm", "--", in.Memory)).With("memory", in.Memory)
}

// permit makes the op wait for the registry's permission: only the registry knows which guests of
// a volume have run. Each request has a new op id, because an earlier answer may be outdated.
func (e *Env) permit(ctx context.Context, in *PauseInput, to string) error {
	host, err := e.host(ctx) // the host may have rejoined
	if err != nil {
		return err
	}
	_, err = e.registry.PermitPause(ctx, uuid.NewString(), in.MigrationID, api.PausePermit{InstanceID: in.InstanceID, To: to, Host: host.ID, Epoch: host.Epoch})
	return request.Registry(err)
}

// toBeResumed reports whether the guest ran before the migration and is now paused, but not by an
// I/O error.
func toBeResumed(dom *hv.Domain, was SavedState) bool {
	return was.State == hv.StateRunning && dom.State == hv.StatePaused && dom.PauseReason != hv.PauseIOError
}

func (e *Env) mayResume(ctx context.Context, in *PauseInput, was SavedState) error {
	dom, err := e.subject.Domain(ctx, in.InstanceID)
	if err != nil || dom == nil || !toBeResumed(dom, was) {
		return err
	}
	return e.permit(ctx, in, api.PermitResume)
}

// resumeGuest resumes a guest that ran before the migration. The op repeats a failed resume;
// Unresumed lists the guest until then.
func (e *Env) resumeGuest(ctx context.Context, in *PauseInput, was SavedState) error {
	dom, err := e.subject.Domain(ctx, in.InstanceID)
	if err != nil {
		return err
	}
	if dom == nil || !toBeResumed(dom, was) {
		e.unresumed.Runs(in.InstanceID)
		return nil
	}
	err = e.unresumed.Ended(in.InstanceID, in.InstanceName, "the move of volume "+in.VolumeName, e.guests.Resume(ctx, in.InstanceID))
	if errors.Is(err, hv.ErrNotActive) || errors.Is(err, hv.ErrNotFound) {
		return nil // it powered off
	}
	return err
}

// Unresumed returns, for each guest that libvirt does not resume, the reason.
func (e *Env) Unresumed() []string { return e.unresumed.All() }
