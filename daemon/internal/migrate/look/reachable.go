// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// CheckReachable refuses directories that the guest's QEMU cannot enter, and a dst that it cannot
// open: the switch, or the guest's next start, would fail.
func (e *Env) CheckReachable(ctx context.Context, s *move.Spec) error {
	user, confined, err := hv.ConfinedUser(ctx, e.processes, s.InstanceID)
	if errors.Is(err, hv.ErrUnavailable) {
		return request.NoHypervisor(err)
	}
	if err != nil || !confined {
		return err
	}
	dirs := []string{location.Directory(s.Dst.Path)}
	if s.Overlay != "" {
		dirs = append(dirs, filepath.Dir(s.Overlay))
	}
	for _, dir := range dirs {
		err := e.images.Reach(user, dir)
		if errors.Is(err, image.ErrAbsent) && s.CreateDst && !s.DstKind().Filesystem {
			continue // an empty volume group has no directory; CheckOpens checks later
		}
		if err != nil {
			return image.Refused("migrate volume "+s.VolumeName, dir, err)
		}
	}
	if s.CreateDst {
		return nil
	}
	return e.mayOpen(s, user, s.Dst.Path)
}

// CheckNotDenied refuses a dst that the security module prevents the guest's process from writing.
func (e *Env) CheckNotDenied(ctx context.Context, s *move.Spec) error {
	return HVRefusal(e.NotDenied(ctx, s, s.Dst.Path, "migrate volume "+s.VolumeName))
}

// CheckSwitchable refuses the switch of a running guest that libvirt would not resume on the other
// image.
func (e *Env) CheckSwitchable(ctx context.Context, s *move.Spec, state hv.State) error {
	if !state.Active() {
		return nil
	}
	err := e.chains.CanSwitch(ctx, s.Src.Path, s.Dst.Path)
	if errors.Is(err, hv.ErrUnsupported) {
		instead := "stop the instance and call again"
		if s.Method == move.MethodMirror { // a mirror ends with its guest
			instead = "move the volume with the instance stopped instead"
		}
		return api.Errorf(api.CodeUnsupportedDisk, "cannot switch volume %s while instance %s runs: %v; %s", s.VolumeName, s.InstanceName, err, instead)
	}
	return HVRefusal(err)
}

// CheckOpens refuses an image that the guest's QEMU could not open, before the image is used. No
// process may have the image open.
func (e *Env) CheckOpens(ctx context.Context, s *move.Spec, path string) error {
	user, confined, err := hv.ConfinedUser(ctx, e.processes, s.InstanceID)
	if errors.Is(err, hv.ErrUnavailable) {
		return request.AwaitHypervisor(err)
	}
	if err != nil || !confined {
		return err
	}
	return e.mayOpen(s, user, path)
}

// DoneIfOpens returns not done, instead of done, for a made image that CheckOpens refuses.
func (e *Env) DoneIfOpens(ctx context.Context, s *move.Spec, path string, is op.Observation, err error) (op.Observation, error) {
	if err != nil || is != op.Done {
		return is, err
	}
	err = e.CheckOpens(ctx, s, path)
	if api.CodeOf(err) == api.CodePermissionDenied {
		return op.NotDone, nil
	}
	if err != nil {
		return op.Unknown, err
	}
	return op.Done, nil
}

func (e *Env) mayOpen(s *move.Spec, user hv.ProcessUser, path string) error {
	return image.Refused("migrate volume "+s.VolumeName, path, e.images.MayOpen(user, path))
}

// NotDenied refuses an action if a rule of the security module prevents the guest's process from
// writing to the image, whatever the image's rights are. doing names the action. If the rules are
// unknown it allows the action: a denied job ends before it writes.
func (e *Env) NotDenied(ctx context.Context, s *move.Spec, path, doing string) error {
	return e.notDenied(ctx, s, path, doing, "")
}

// MayBringBack is NotDenied for src and a cancel. Its refusal begins with the commands that
// complete the migration, since these do not write to src.
func (e *Env) MayBringBack(ctx context.Context, s *move.Spec) error {
	mig := s.ForCommands()
	instead := fmt.Sprintf("the migration can continue to dst: `%s`, then `%s`; or ", mig.CopyCommand(), mig.CompleteCommand())
	if err := e.notDenied(ctx, s, s.Src.Path, "cancel migration "+s.MigrationID, instead); err != nil {
		return err
	}
	return e.notDeniedAfterJob(ctx, s)
}

// notDeniedAfterJob refuses a cancel during the block job of a complete, if the end of this job,
// which the cancel causes, makes the rule against writes to src.
func (e *Env) notDeniedAfterJob(ctx context.Context, s *move.Spec) error {
	if !s.Attached() || !medium.Of(s.Src.Path).Path {
		return nil
	}
	denies, err := e.processes.DeniesBelow(ctx, s.InstanceID)
	if err := e.unknownRules(s, err); err != nil {
		return err
	}
	if !denies {
		return nil
	}
	runs, err := e.move.JobRuns(ctx, s)
	if err != nil || !runs {
		return err
	}
	mig := s.ForCommands()
	return api.Errorf(api.CodePermissionDenied,
		"cannot cancel migration %s while its block job runs: AppArmor confines instance %s, and libvirt before 12.1.0 denies it to write to %s once the job has ended; let the migration end (`%s`), or stop the instance first",
		s.MigrationID, s.InstanceName, s.Src.Path, mig.CompleteCommand()).With("path", s.Src.Path)
}

// notDenied is NotDenied with a refusal that first says what to do instead.
func (e *Env) notDenied(ctx context.Context, s *move.Spec, path, doing, instead string) error {
	if !s.Attached() || !medium.Of(path).Path {
		return nil // the rules are about files
	}
	rule, err := e.processes.WriteDeniedBy(ctx, s.InstanceID, path)
	if err := e.unknownRules(s, err); err != nil {
		return err
	}
	if rule == nil {
		return nil
	}
	return api.Errorf(api.CodePermissionDenied,
		"cannot %s: AppArmor denies instance %s to write to %s, by a rule that libvirt made while that was below the overlay of a migration; "+
			"%sremove the rule (sed -i '\\|deny \"%[3]s\" w,|d' %[5]s) and try again, libvirt reads the rules anew for each job; or stop the instance first",
		doing, s.InstanceName, rule.Path, instead, rule.File).With("path", rule.Path).With("file", rule.File)
}

// unknownRules returns err, about the rules of a guest's process, only if libvirt does not answer.
// Other unknown rules deny nothing.
func (e *Env) unknownRules(s *move.Spec, err error) error {
	if errors.Is(err, hv.ErrUnavailable) {
		return err
	}
	if err != nil && !errors.Is(err, hv.ErrNotActive) {
		e.log.Warn("it is not known what AppArmor denies to a guest", "instance", s.InstanceName, "err", err)
	}
	return nil
}
