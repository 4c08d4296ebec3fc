// SPDX-License-Identifier: Apache-2.0

package released

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/place"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/migrate/which"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/medium"
)

// Left returns the paths of the images that a volume has left by moves of this host. It omits
// images that belong to a volume again, and images that are known to be gone. It returns errors of
// the registry and the hypervisor.
func (rs *Sources) Left(ctx context.Context, volumeID string) ([]string, error) {
	look, err := rs.claims.Look(ctx)
	if err != nil {
		return nil, err
	}
	all, err := rs.leavers(ctx, look, ofVolume(volumeID))
	var paths []string
	for _, h := range all {
		paths = append(paths, h.Spec.Src.Path)
	}
	return paths, err
}

func ofVolume(volumeID string) func(*move.Spec) bool {
	return func(s *move.Spec) bool { return s.VolumeID == volumeID }
}

// newestOfEach returns the newest of these migrations for each src, newest first.
func newestOfEach(all []*history.Migration) []*history.Migration {
	var out []*history.Migration
	for _, h := range slices.Backward(all) {
		same := func(o *history.Migration) bool { return which.SameImage(o.Spec.Src.Path, h.Spec.Src.Path) }
		if !slices.ContainsFunc(out, same) {
			out = append(out, h)
		}
	}
	return out
}

func (rs *Sources) leavers(ctx context.Context, look *location.Look, wanted func(*move.Spec) bool) ([]*history.Migration, error) {
	all, err := rs.kept(ctx, wanted)
	return slices.DeleteFunc(all, func(h *history.Migration) bool { return isVolumes(look, h) }), err
}

func isVolumes(look *location.Look, h *history.Migration) bool {
	holder, unknown := look.Holder(h.Spec.Src.Path, location.Self{})
	return unknown == nil && holder.Volume != nil
}

// kept returns the wanted migrations that have left their src, oldest first, if src exists and no
// later migration has copied onto it. src may be in use.
func (rs *Sources) kept(ctx context.Context, wanted func(*move.Spec) bool) ([]*history.Migration, error) {
	starts, err := rs.history.Starts(ctx)
	if err != nil {
		return nil, err
	}
	var out []*history.Migration
	for i, o := range starts {
		s, err := history.SpecOf(o)
		if err != nil {
			return nil, err
		}
		if !wanted(&s) || rs.isGone(ctx, &s) {
			continue
		}
		h, err := rs.history.Load(ctx, o.Group)
		if err != nil {
			return nil, err
		}
		left, err := rs.leftSource(ctx, h)
		if err != nil {
			return nil, err
		}
		over, err := rs.lastCopyOnto(ctx, starts[i+1:], s.Src.Path)
		if err != nil {
			return nil, err
		}
		if left && over == nil {
			out = append(out, h)
		}
	}
	return out, nil
}

// isGone reports whether the src of a migration is known to be gone: its path has no image or
// another image, or the socket of its NBD server is missing. It returns false for an image on
// another machine, since a check could take long.
func (rs *Sources) isGone(ctx context.Context, s *move.Spec) bool {
	if s.SrcKind().Remote {
		return false
	}
	if e, err := medium.ParseNBD(s.Src.Path); err == nil {
		_, err := location.Stat(e.Socket)
		return errors.Is(err, fs.ErrNotExist)
	}
	now, err := rs.images.Fingerprint(ctx, s.Src.Path)
	if err != nil {
		return errors.Is(err, image.ErrAbsent)
	}
	return !location.SameImagePrint(s.SrcPrint, now)
}

func (rs *Sources) leftSource(ctx context.Context, h *history.Migration) (bool, error) {
	if !h.Spec.LedByRegistry() {
		state, _ := h.State()
		return state.Final() && h.Position() == move.OnDst, nil
	}
	// The registry decides where the move has ended.
	mig, err := rs.registry.Migration(ctx, h.Spec.MigrationID)
	if api.CodeOf(err) == api.CodeNotFound {
		return false, nil
	}
	return mig.State == api.MigrationCompleted, err
}

func (rs *Sources) releasedInput(ctx context.Context, h *history.Migration) (*place.ReleasedInput, error) {
	ended, err := rs.endOf(ctx, h)
	if err != nil {
		return nil, err
	}
	facts, err := plans.NewHistory(rs.journal, rs.runner.Status).Facts(ctx, &h.Spec, "")
	if err != nil {
		return nil, request.Refused(err)
	}
	return &place.ReleasedInput{Spec: h.Spec, Seal: facts.Seal, EndedAt: ended}, nil
}

// endOf returns the end time of a migration. If the registry controls the move, only the registry
// knows the time.
func (rs *Sources) endOf(ctx context.Context, h *history.Migration) (time.Time, error) {
	if !h.Spec.LedByRegistry() {
		_, ended := h.Times()
		return ended, nil
	}
	mig, err := rs.registry.Migration(ctx, h.Spec.MigrationID)
	if err != nil {
		return time.Time{}, err
	}
	if mig.FinishedAt == nil {
		return time.Time{}, api.Errorf(api.CodeStateForbidden, "migration %s of volume %s has not ended", h.Spec.MigrationID, h.Spec.VolumeName)
	}
	return *mig.FinishedAt, nil
}

func releasedSource(s *move.Spec, ended time.Time) api.ReleasedSource {
	return api.ReleasedSource{
		MigrationID: s.MigrationID, VolumeID: s.VolumeID, VolumeName: s.VolumeName, Host: s.HostName, Location: s.Src, ReleasedAt: ended,
	}
}

// readableDomains returns the domains of this host that libvirt can describe. Writes of other
// domains show in the image's stamp.
func (rs *Sources) readableDomains(ctx context.Context) ([]hv.Domain, error) {
	doms, _, err := hv.Readable(rs.hv.Domains(ctx))
	return doms, err
}

// LeaverOf returns the newest migration of this host that has left the image at a path. It returns
// nil if there is none, or if a later migration has begun to overwrite the image.
func (rs *Sources) LeaverOf(ctx context.Context, path string) (*history.Migration, error) {
	starts, err := rs.history.Starts(ctx)
	if err != nil {
		return nil, err
	}
	return rs.leaverAmong(ctx, starts, path)
}

// leaverAmong is LeaverOf for the migrations that began with the ops in starts, which are ordered
// oldest first.
func (rs *Sources) leaverAmong(ctx context.Context, starts []op.Op, path string) (*history.Migration, error) {
	for i, o := range slices.Backward(starts) {
		s, err := history.SpecOf(o)
		if err != nil {
			return nil, err
		}
		if !which.SameImage(s.Src.Path, path) {
			continue
		}
		h, err := rs.history.Load(ctx, o.Group)
		if err != nil {
			return nil, err
		}
		left, err := rs.leftSource(ctx, h)
		if err != nil {
			return nil, err
		}
		if !left || rs.isGone(ctx, &h.Spec) {
			continue
		}
		over, err := rs.lastCopyOnto(ctx, starts[i+1:], path)
		if err != nil || over != nil {
			return nil, err
		}
		return h, nil
	}
	return nil, nil
}

// lastCopyOnto returns the newest migration that has written to a path, or nil, among the
// migrations that began with the ops in starts, which are ordered oldest first. A copy that was
// refused before it wrote does not count.
func (rs *Sources) lastCopyOnto(ctx context.Context, starts []op.Op, path string) (*history.Migration, error) {
	for _, o := range slices.Backward(starts) {
		s, err := history.SpecOf(o)
		if err != nil {
			return nil, err
		}
		if !which.SameImage(s.Dst.Path, path) {
			continue
		}
		h, err := rs.history.Load(ctx, o.Group)
		if err != nil {
			return nil, err
		}
		if wrote, err := rs.wroteDst(ctx, h); err != nil || wrote {
			return h, err
		}
	}
	return nil, nil
}

func (rs *Sources) wroteDst(ctx context.Context, h *history.Migration) (bool, error) {
	for i := range h.Ops {
		records, err := rs.journal.Records(ctx, h.Ops[i].Op.ID)
		if err != nil {
			return false, request.JournalError(err)
		}
		if plans.WroteDst(&h.Ops[i].Status, records) {
			return true, nil
		}
	}
	return false, nil
}

func (rs *Sources) changeOf(ctx context.Context, h *history.Migration) (change image.Change, why string, err error) {
	in, err := rs.releasedInput(ctx, h)
	if err != nil {
		return image.ChangeUnknown, "", err
	}
	return rs.place.ReleasedChange(ctx, in)
}

// CheckNotWritten refuses to overwrite an image that a volume of this host has left and that was
// written since: the image may have the only copy of a guest's writes. If it is unknown whether
// the image was written, it refuses unless the target allows overwriting, or another program makes
// the copy.
func (rs *Sources) CheckNotWritten(ctx context.Context, s *move.Spec, t api.MigrationTarget) error {
	path := s.Dst.Path
	h, err := rs.LeaverOf(ctx, path)
	if err != nil || h == nil {
		return err
	}
	change, why, err := rs.changeOf(ctx, h)
	switch {
	case err != nil || change == image.Unchanged:
		return err
	case change == image.ChangeUnknown && (t.Overwrite || t.ExternalCopy):
		return nil
	case change == image.ChangeUnknown:
		return api.Errorf(api.CodeDstInUse, "%s is the source that migration %s has left, and nobody can tell whether it was written since volume %s has left it (%s), so it may have what the volume lacks: compare it with the volume and give --yes to have it overwritten, or choose another path",
			path, h.Spec.MigrationID, h.Spec.VolumeName, why).
			With("migration_id", h.Spec.MigrationID).With(api.DetailOverwrites, path)
	}
	says := "remove it yourself"
	if !h.Spec.SrcKind().Filesystem {
		says = "delete the device and make another one"
	}
	return api.Errorf(api.CodeDstInUse, "%s is the source that migration %s has left, and it was written since volume %s has left it, by a guest that was started on it perhaps: "+
		"it may have what the volume lacks, and is not overwritten; compare it with the volume, and then %s or choose another path", path, h.Spec.MigrationID, h.Spec.VolumeName, says).
		With("migration_id", h.Spec.MigrationID)
}

// CheckNothingLost refuses to overwrite the source that a move of another volume has left, or a
// file with data that no move of this host has written, unless the target allows overwriting, or
// another program makes the copy. It assumes that any other device or export was made for this
// volume.
func (rs *Sources) CheckNothingLost(ctx context.Context, s *move.Spec, t api.MigrationTarget, info image.Info) error {
	if t.Overwrite || t.ExternalCopy {
		return nil
	}
	file := medium.On(s.Dst.Path, info.Block).Filesystem
	if file {
		blank, err := rs.images.Blank(ctx, s.Dst)
		if err != nil || blank {
			return err
		}
	}
	starts, err := rs.history.Starts(ctx)
	if err != nil {
		return err
	}
	left, err := rs.leaverAmong(ctx, starts, s.Dst.Path)
	if err != nil || left != nil && left.Spec.VolumeID == s.VolumeID || left == nil && !file {
		return err
	}
	is := humanize.ExactBytes(info.SizeBytes) + " in use"
	if file {
		is = fmt.Sprintf("a file of %s, of which %s are in use", humanize.ExactBytes(info.SizeBytes), humanize.Bytes(info.AllocatedBytes))
	}
	whose := "not by anything that Volferry knows of"
	if left != nil {
		whose = fmt.Sprintf("by what volume %s has left (migration %s), which is its way back", left.Spec.VolumeName, left.Spec.MigrationID)
	} else if copied, err := rs.copiedInVain(ctx, starts, s); err != nil || copied {
		return err
	}
	return api.Errorf(api.CodeDstInUse, "%s is there already: %s, %s. The move would overwrite it: give --yes to have it overwritten, or choose another path",
		s.Dst.Path, is, whose).
		With(api.DetailOverwrites, s.Dst.Path).With("allocated_bytes", info.AllocatedBytes)
}

// copiedInVain reports whether the file at the dst of s has only the copy of a cancelled move, and
// was not written since. It returns false if the registry controlled that move, since this host
// does not know how such a move ended.
func (rs *Sources) copiedInVain(ctx context.Context, starts []op.Op, s *move.Spec) (bool, error) {
	h, err := rs.lastCopyOnto(ctx, starts, s.Dst.Path)
	if err != nil || h == nil || h.Spec.LedByRegistry() || h.Position() == move.OnDst {
		return false, err
	}
	if h.Spec.DstPrint == "" || !location.SameImagePrint(h.Spec.DstPrint, s.DstPrint) {
		return false, nil
	}
	last := h.Find(move.GoalCancel)
	if last == nil {
		return false, nil
	}
	left := place.LeftDst(&last.Status)
	if left == nil {
		return false, nil
	}
	now, err := rs.images.Stamp(ctx, s.Dst.Path)
	return err == nil && !now.WrittenSince(*left), err
}

// CheckAdoptable refuses an image that an existing volume has left by a move of this host: the
// adoption of this older copy must be forced. verdict begins the error's text.
func (rs *Sources) CheckAdoptable(ctx context.Context, path, verdict string) error {
	h, err := rs.LeaverOf(ctx, path)
	if err != nil || h == nil {
		return err
	}
	vol, err := rs.registry.Volume(ctx, h.Spec.VolumeID)
	if api.CodeOf(err) == api.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	change, why, err := rs.changeOf(ctx, h)
	if err != nil {
		return err
	}
	state := "Nothing was written to it since, so the volume has all that it has"
	switch change {
	case image.Changed:
		state = "It was written since, so each may have what the other lacks"
	case image.ChangeUnknown:
		state = "Nobody can tell whether it was written since (" + why + "), so each may have what the other lacks"
	case image.Unchanged:
	}
	_, ended := h.Times()
	return api.Errorf(api.CodeConflict, "%s: %s is the source that volume %s has left by migration %s on %s; the volume is at %s now. %s. To have the older copy as a volume of its own, give --force",
		verdict, path, vol.Name, h.Spec.MigrationID, ended.UTC().Format("2006-01-02 15:04:05 MST"), vol.Location.Path, state).
		With("migration_id", h.Spec.MigrationID).With("volume_id", vol.ID)
}
