// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
	"github.com/volferry/volferry/internal/shell"
)

// Provided adds checks to a step that opens, writes or makes src or dst, or makes it an instance's
// disk. The step begins only if the checks pass.
func Provided(st op.Step, checks ...func(context.Context, *move.Spec) error) op.Step {
	do := st.Do
	st.Do = func(ctx context.Context, r *op.Run) error {
		if err := passed(ctx, r, checks); err != nil {
			return err
		}
		return do(ctx, r)
	}
	return st
}

// Followed returns the step st with a call of next after each successful Do.
func Followed(st op.Step, next func(context.Context, *op.Run, *move.Spec) error) op.Step {
	do := st.Do
	st.Do = func(ctx context.Context, r *op.Run) error {
		if err := do(ctx, r); err != nil {
			return err
		}
		s, err := move.SpecOf(r)
		if err != nil {
			return err
		}
		return next(ctx, r, s)
	}
	return st
}

// JobProvided is Provided for a step that waits for a block job. If a check fails, Observe returns
// NotDone even if the job is ready, and Do returns the reason.
func JobProvided(st op.Step, checks ...func(context.Context, *move.Spec) error) op.Step {
	st = Provided(st, checks...)
	observe := st.Observe
	st.Observe = func(ctx context.Context, r *op.Run) (op.Observation, error) {
		if passed(ctx, r, checks) != nil {
			return op.NotDone, nil //nolint:nilerr // Do returns the reason
		}
		return observe(ctx, r)
	}
	return st
}

func passed(ctx context.Context, r *op.Run, checks []func(context.Context, *move.Spec) error) error {
	s, err := move.SpecOf(r)
	if err != nil {
		return err
	}
	for _, check := range checks {
		if err := check(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// EndUnchanged returns the check of the image that the guest is switched to: SrcUnchanged or
// DstUnchanged.
func (e *Env) EndUnchanged(to move.Direction) func(context.Context, *move.Spec) error {
	if to.End == move.OnSrc {
		return e.SrcUnchanged
	}
	return e.DstUnchanged
}

// EndUnchangedInPause is EndUnchanged for a paused guest. It does not check an image on the
// network (NBD, RBD), which may take long: StepPauseToSwitch has checked that image right before
// the pause, and QEMU has kept it open since. EndHasItsName checks the image's name after the
// pause.
func (e *Env) EndUnchangedInPause(to move.Direction) func(context.Context, *move.Spec) error {
	unchanged := e.EndUnchanged(to)
	return func(ctx context.Context, s *move.Spec) error {
		if !to.Kind(s).Witnessed {
			return nil
		}
		return unchanged(ctx, s)
	}
}

// EndHasItsName returns an error if the address in the definition now leads to another image than
// before the pause. The guest runs again when EndHasItsName is called, and has the right image,
// but its next start would open the other image. The step is tried again until the storage
// answers.
func (e *Env) EndHasItsName(ctx context.Context, s *move.Spec, to move.Direction) error {
	if to.Kind(s).Witnessed {
		return nil
	}
	path := to.Image(s).Path
	err := e.EndUnchanged(to)(ctx, s)
	switch refused := (*api.Error)(nil); {
	case err == nil:
		return nil
	case !errors.As(err, &refused) || refused.Details["expected"] == nil:
		return op.Retry(request.BusyDelay, err)
	default:
		return op.UnknownOutcome(api.Errorf(api.CodeChainChanged,
			"volume %s of instance %s was switched to %v, which had the address %s right before, and now there is %s: somebody has renamed it and given its name to another image. "+
				"A guest that runs has the right image and loses nothing; do not stop it, nor start one that is off, before the first image has that name again (%s). Then call again",
			s.VolumeName, s.InstanceName, refused.Details["expected"], path, orNothing(fmt.Sprint(refused.Details["found"])), renameBack(path)).
			With("expected", refused.Details["expected"]).With("found", refused.Details["found"]))
	}
}

// renameBack describes how an image gets its address back. Only the server's owner knows an
// export's present name; a cluster finds an RBD image by its id.
func renameBack(path string) string {
	image, err := medium.ParseRBD(path)
	if err != nil {
		return "nobody but its server's owner can tell how"
	}
	spec := image.Spec()
	return "`" + shell.Line("rbd", "info", "--", image.Pool+"/IMAGE") + "` says which one has that id; `" + shell.Line("rbd", "rename", "--", spec, spec+".other") + "` takes the name from what has it now, and `" +
		shell.Line("rbd", "rename", "--", image.Pool+"/IMAGE", spec) + "` gives it back"
}

// MayWriteDst checks dst right before its first write, and before a copy continues: since
// preflight a domain may have begun to use dst, or its path may have another file. It returns the
// fingerprint that dst must have, or "".
func (e *Env) MayWriteDst(ctx context.Context, s *move.Spec) (string, error) {
	if err := e.DstUnchanged(ctx, s); err != nil {
		return "", err
	}
	if err := e.look.DstNotInUse(ctx, s); err != nil {
		return "", err
	}
	return e.dstPrint(ctx, s)
}

// MayMirrorToDst makes the checks of MayWriteDst, and further checks, before QEMU mirrors to dst.
// It checks nothing once the mirror job runs.
func (e *Env) MayMirrorToDst(ctx context.Context, s *move.Spec) error {
	disk, err := e.move.ReadDisk(ctx, s)
	if err != nil || disk.Mirror != nil {
		return err
	}
	if s.Background() {
		if err := e.look.MayCopyBehind(ctx, s); err != nil {
			return err
		}
	}
	if !s.DstKind().Witnessed { // an unknown client may be the guest itself
		if _, err := e.look.ConfirmDisk(ctx, s); err != nil {
			return err
		}
		if err := e.look.DstAnswers(ctx, s); err != nil {
			return err
		}
	}
	if _, err = e.MayWriteDst(ctx, s); err != nil {
		return err
	}
	return e.move.HVError(e.look.NotDenied(ctx, s, s.Dst.Path, "complete migration "+s.MigrationID))
}

// DstUnchanged refuses a dst that is neither the image that the migration made nor the image that
// preflight saw.
func (e *Env) DstUnchanged(ctx context.Context, s *move.Spec) error {
	want, err := e.dstPrint(ctx, s)
	if err != nil || want == "" {
		return err
	}
	now, err := e.images.Fingerprint(ctx, s.Dst.Path)
	if errors.Is(err, image.ErrAbsent) || err == nil && !location.SameImagePrint(want, now) {
		return DstReplaced(s.Dst.Path, want, now)
	}
	return e.move.HVError(err)
}

// SrcUnchanged refuses a src with another image at its path since preflight, for example after a
// LUN's or loop device's number was reused.
func (e *Env) SrcUnchanged(ctx context.Context, s *move.Spec) error {
	now, err := e.images.Fingerprint(ctx, s.Src.Path)
	if errors.Is(err, image.ErrAbsent) || err == nil && !location.SameImagePrint(s.SrcPrint, now) {
		return api.Errorf(api.CodeChainChanged,
			"%s is not what it was when the migration began: it was %s, and now there is %s. Nothing is read from it, written or deleted. Put the right one back at this path, and call again",
			s.Src.Path, s.SrcPrint, orNothing(now)).With("expected", s.SrcPrint).With("found", now)
	}
	return e.move.HVError(err)
}

// dstPrint returns the fingerprint that dst must have, or "" if unknown: a tool that makes an
// external copy may replace the file (rsync renames).
func (e *Env) dstPrint(ctx context.Context, s *move.Spec) (string, error) {
	identity := s.DstPrint
	if s.CreateDst {
		note, err := e.history.Dst(ctx, s)
		if err != nil {
			return "", err
		}
		identity = note.Print
	}
	if s.ExternalCopy && !location.IsDevicePrint(identity) {
		return "", nil
	}
	return identity, nil
}

// DstReplaced returns the refusal of a dst that is another file or device than at the start.
func DstReplaced(path, want, now string) *api.Error {
	if !location.IsDevicePrint(want) {
		return api.Errorf(api.CodeDstInUse, "%s was removed, or replaced by another file, since the migration began; nothing is written to it. Cancel the migration, look whose file it is, and migrate again", path).
			With("expected", want).With("found", now)
	}
	return api.Errorf(api.CodeDstInUse,
		"%s is not the device that it was when the migration began: it was %s, and now there is %s. Nothing is written to it. Put the right device back at this path and call again, or cancel the migration",
		path, want, orNothing(now)).With("expected", want).With("found", now)
}

// DstToReserve returns dst with its identity if it is an existing device. The identity of a new
// device is reported later (IdentifyMade, MadeDst).
func DstToReserve(s *move.Spec) api.Location {
	dst := s.Dst
	dst.Identity = image.IdentityIn(s.DstPrint)
	return dst
}

// MadeDst returns dst with the identity of its new device.
func (e *Env) MadeDst(ctx context.Context, s *move.Spec) (api.Location, error) {
	dst := s.Dst
	fingerprint, err := e.dstPrint(ctx, s)
	dst.Identity = image.IdentityIn(fingerprint)
	return dst, err
}

// IdentifyMade reports the identity of a new device to the registry after the volume has moved
// there. If that fails, the next look at the images (volume.Manager.Run) repeats it.
func (e *Env) IdentifyMade(ctx context.Context, opID string, s *move.Spec) {
	if !s.CreateDst {
		return // the registry reserved dst with its identity
	}
	dst, err := e.MadeDst(ctx, s)
	if err == nil && dst.Identity != "" {
		_, err = e.registry.IdentifyVolume(ctx, opID, s.VolumeID, api.VolumeIdentify{Path: dst.Path, Identity: dst.Identity})
	}
	if err != nil {
		e.log.Info("the registry has not heard which device a volume was moved to", "volume", s.VolumeName, "migration", s.MigrationID, "err", err)
	}
}

func orNothing(identity string) string { return cmp.Or(identity, "nothing") }

// IsSource reports whether the path of src still has the moved image, or has no image.
func (e *Env) IsSource(ctx context.Context, s *move.Spec) (bool, error) {
	now, err := e.images.Fingerprint(ctx, s.Src.Path)
	if errors.Is(err, image.ErrAbsent) {
		return true, nil
	}
	if err != nil || now != s.SrcPrint {
		return false, err
	}
	if s.Src.Pool == "" {
		return true, nil
	}
	found, err := e.hv.LookupVolume(ctx, s.Src.Pool, s.Src.Name)
	if errors.Is(err, hv.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return location.SameImage(found.Path, s.Src.Path)
}
