// SPDX-License-Identifier: Apache-2.0

package migrate

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
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/place"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// Left returns the paths of the images that a volume has left by moves of this host, except those
// that are volumes now, and those that are seen to be gone. Its errors are the registry's and the
// hypervisor's.
func (m *Manager) Left(ctx context.Context, volumeID string) ([]string, error) {
	look, err := m.ports.Claims.Look(ctx)
	if err != nil {
		return nil, err
	}
	all, err := m.leavers(ctx, look, ofVolume(volumeID))
	var paths []string
	for _, h := range all {
		paths = append(paths, h.spec.Src.Path)
	}
	return paths, err
}

func ofVolume(volumeID string) func(*move.Spec) bool {
	return func(s *move.Spec) bool { return s.VolumeID == volumeID }
}

// newestOfEach returns, for each image, the newest of the migrations that have left it, newest
// first.
func newestOfEach(all []*history) []*history {
	var out []*history
	for _, h := range slices.Backward(all) {
		same := func(o *history) bool { return sameImage(o.spec.Src.Path, h.spec.Src.Path) }
		if !slices.ContainsFunc(out, same) {
			out = append(out, h)
		}
	}
	return out
}

// leavers returns the wanted migrations with a src that exists and is no volume, oldest first.
func (m *Manager) leavers(ctx context.Context, look *location.Look, wanted func(*move.Spec) bool) ([]*history, error) {
	all, err := m.kept(ctx, wanted)
	return slices.DeleteFunc(all, func(h *history) bool { return isVolumes(look, h) }), err
}

func isVolumes(look *location.Look, h *history) bool {
	holder, unknown := look.Holder(h.spec.Src.Path, location.Self{})
	return unknown == nil && holder.Volume != nil
}

// kept returns the wanted migrations that have left their src, if that exists and was not copied
// over, oldest first. src may be in use. It reads the whole history only if src exists.
func (m *Manager) kept(ctx context.Context, wanted func(*move.Spec) bool) ([]*history, error) {
	starts, err := m.starts(ctx)
	if err != nil {
		return nil, err
	}
	var out []*history
	for i, o := range starts {
		s, err := specOf(o)
		if err != nil {
			return nil, err
		}
		if !wanted(&s) || m.isGone(ctx, &s) {
			continue
		}
		h, err := m.loadHistory(ctx, o.Group)
		if err != nil {
			return nil, err
		}
		left, err := m.leftSource(ctx, h)
		if err != nil {
			return nil, err
		}
		over, err := m.lastCopyOnto(ctx, starts[i+1:], s.Src.Path)
		if err != nil {
			return nil, err
		}
		if left && over == nil {
			out = append(out, h)
		}
	}
	return out, nil
}

// isGone reports whether the src of a migration is seen to be gone: its path is empty or has
// another image, or the socket of an export's server does not exist. Images on other machines are
// not asked: that may take long.
func (m *Manager) isGone(ctx context.Context, s *move.Spec) bool {
	if api.IsRemote(s.Src.Path) {
		return false
	}
	if e, err := api.ParseNBD(s.Src.Path); err == nil {
		_, err := location.Stat(e.Socket)
		return errors.Is(err, fs.ErrNotExist)
	}
	now, err := m.ports.Images.Fingerprint(ctx, s.Src.Path)
	if err != nil {
		return errors.Is(err, image.ErrAbsent)
	}
	return s.SrcPrint != "" && !location.SameImagePrint(s.SrcPrint, now)
}

func (m *Manager) leftSource(ctx context.Context, h *history) (bool, error) {
	if !h.spec.LedByRegistry() {
		state, _ := h.state()
		return state.Final() && h.position() == move.OnDst, nil
	}
	// The registry decides where the move has ended.
	mig, err := m.ports.Registry.Migration(ctx, h.spec.MigrationID)
	if api.CodeOf(err) == api.CodeNotFound {
		return false, nil
	}
	return mig.State == api.MigrationCompleted, err
}

// releasedInput describes the src that a migration has left, without any check.
func (m *Manager) releasedInput(ctx context.Context, h *history) (*place.ReleasedInput, error) {
	ended, err := m.endOf(ctx, h)
	if err != nil {
		return nil, err
	}
	facts, err := plans.NewHistory(m.journal, m.runner.Status).Facts(ctx, &h.spec, "")
	if err != nil {
		return nil, request.Refused(err)
	}
	return &place.ReleasedInput{Spec: h.spec, Seal: facts.Seal, EndedAt: ended}, nil
}

// endOf returns the end time of a migration that has left its src. Only the registry knows it for a
// move that it leads.
func (m *Manager) endOf(ctx context.Context, h *history) (time.Time, error) {
	if !h.spec.LedByRegistry() {
		_, ended := h.times()
		return ended, nil
	}
	mig, err := m.ports.Registry.Migration(ctx, h.spec.MigrationID)
	if err != nil {
		return time.Time{}, err
	}
	if mig.FinishedAt == nil {
		return time.Time{}, api.Errorf(api.CodeStateForbidden, "migration %s of volume %s has not ended", h.spec.MigrationID, h.spec.VolumeName)
	}
	return *mig.FinishedAt, nil
}

// releasedSource describes the src that a migration has left, without looking at it.
func releasedSource(s *move.Spec, ended time.Time) api.ReleasedSource {
	return api.ReleasedSource{
		MigrationID: s.MigrationID, VolumeID: s.VolumeID, VolumeName: s.VolumeName, Host: s.HostName, Location: s.Src, ReleasedAt: ended,
	}
}

// readableDomains returns the domains of this host that can be read. Writes of the others show in
// the image.
func (m *Manager) readableDomains(ctx context.Context) ([]hv.Domain, error) {
	doms, _, err := hv.Readable(m.ports.HV.Domains(ctx))
	return doms, err
}

// leaverOf returns the newest migration of this host that has left the image at a path, nil if none
// has, or if a later one has begun to overwrite it.
func (m *Manager) leaverOf(ctx context.Context, path string) (*history, error) {
	starts, err := m.starts(ctx)
	if err != nil {
		return nil, err
	}
	return m.leaverAmong(ctx, starts, path)
}

// leaverAmong is leaverOf among the migrations that these ops have begun, oldest first.
func (m *Manager) leaverAmong(ctx context.Context, starts []op.Op, path string) (*history, error) {
	for i, o := range slices.Backward(starts) {
		s, err := specOf(o)
		if err != nil {
			return nil, err
		}
		if !sameImage(s.Src.Path, path) {
			continue
		}
		h, err := m.loadHistory(ctx, o.Group)
		if err != nil {
			return nil, err
		}
		left, err := m.leftSource(ctx, h)
		if err != nil {
			return nil, err
		}
		if !left || m.isGone(ctx, &h.spec) {
			continue
		}
		over, err := m.lastCopyOnto(ctx, starts[i+1:], path)
		if err != nil || over != nil {
			return nil, err
		}
		return h, nil
	}
	return nil, nil
}

// lastCopyOnto returns the newest migration that has written to a path, among those that these ops
// have begun (oldest first), nil if none has. A refused copy has not.
func (m *Manager) lastCopyOnto(ctx context.Context, starts []op.Op, path string) (*history, error) {
	for _, o := range slices.Backward(starts) {
		s, err := specOf(o)
		if err != nil {
			return nil, err
		}
		if !sameImage(s.Dst.Path, path) {
			continue
		}
		h, err := m.loadHistory(ctx, o.Group)
		if err != nil {
			return nil, err
		}
		if wrote, err := m.wroteDst(ctx, h); err != nil || wrote {
			return h, err
		}
	}
	return nil, nil
}

func (m *Manager) wroteDst(ctx context.Context, h *history) (bool, error) {
	for i := range h.ops {
		records, err := m.journal.Records(ctx, h.ops[i].Op.ID)
		if err != nil {
			return false, request.JournalError(err)
		}
		if plans.WroteDst(&h.ops[i].Status, records) {
			return true, nil
		}
	}
	return false, nil
}

// changeOf reports whether the src that a migration has left was written since; why is the reason
// if that is unknown.
func (m *Manager) changeOf(ctx context.Context, h *history) (change image.Change, why string, err error) {
	in, err := m.releasedInput(ctx, h)
	if err != nil {
		return image.ChangeUnknown, "", err
	}
	return m.env.Place.ReleasedChange(ctx, in)
}

// checkNotWritten refuses to overwrite an image that a volume of this host has left and that was
// written since: it may have the only copy of a guest's writes. If that is unknown, it is
// overwritten only if the target allows that, or if another program copies.
func (m *Manager) checkNotWritten(ctx context.Context, s *move.Spec, t api.MigrationTarget) error {
	path := s.Dst.Path
	h, err := m.leaverOf(ctx, path)
	if err != nil || h == nil {
		return err
	}
	change, why, err := m.changeOf(ctx, h)
	switch {
	case err != nil || change == image.Unchanged:
		return err
	case change == image.ChangeUnknown && (t.Overwrite || t.ExternalCopy):
		return nil
	case change == image.ChangeUnknown:
		return api.Errorf(api.CodeDstInUse, "%s is the source that migration %s has left, and nobody can tell whether it was written since volume %s has left it (%s), so it may have what the volume lacks: compare it with the volume and give --yes to have it overwritten, or choose another path",
			path, h.spec.MigrationID, h.spec.VolumeName, why).
			With("migration_id", h.spec.MigrationID).With(api.DetailOverwrites, path)
	}
	says := "remove it yourself"
	if h.spec.SrcBlock {
		says = "delete the device and make another one"
	}
	return api.Errorf(api.CodeDstInUse, "%s is the source that migration %s has left, and it was written since volume %s has left it, by a guest that was started on it perhaps: "+
		"it may have what the volume lacks, and is not overwritten; compare it with the volume, and then %s or choose another path", path, h.spec.MigrationID, h.spec.VolumeName, says).
		With("migration_id", h.spec.MigrationID)
}

// checkNothingLost refuses to overwrite another volume's way back, or a file with data that no move
// of this host has written, unless the target allows that, or another program copies. A named
// device or export was made for the volume.
func (m *Manager) checkNothingLost(ctx context.Context, s *move.Spec, t api.MigrationTarget, info image.Info) error {
	if t.Overwrite || t.ExternalCopy {
		return nil
	}
	file := !info.Block && !api.IsNetwork(s.Dst.Path)
	if file {
		blank, err := m.ports.Images.Blank(ctx, s.Dst)
		if err != nil || blank {
			return err
		}
	}
	starts, err := m.starts(ctx)
	if err != nil {
		return err
	}
	left, err := m.leaverAmong(ctx, starts, s.Dst.Path)
	if err != nil || left != nil && left.spec.VolumeID == s.VolumeID || left == nil && !file {
		return err
	}
	is := api.ExactBytes(info.SizeBytes) + " in use"
	if file {
		is = fmt.Sprintf("a file of %s, of which %s are in use", api.ExactBytes(info.SizeBytes), api.Bytes(info.AllocatedBytes))
	}
	whose := "not by anything that Volferry knows of"
	if left != nil {
		whose = fmt.Sprintf("by what volume %s has left (migration %s), which is its way back", left.spec.VolumeName, left.spec.MigrationID)
	} else if copied, err := m.copiedInVain(ctx, starts, s); err != nil || copied {
		return err
	}
	return api.Errorf(api.CodeDstInUse, "%s is there already: %s, %s. The move would overwrite it: give --yes to have it overwritten, or choose another path",
		s.Dst.Path, is, whose).
		With(api.DetailOverwrites, s.Dst.Path).With("allocated_bytes", info.AllocatedBytes)
}

// copiedInVain reports whether all data in the file at the dst of s is from the copy of a move that
// was taken back: the file is the same, and unwritten since. It is false for a move that the
// registry leads, since this host does not know its end.
func (m *Manager) copiedInVain(ctx context.Context, starts []op.Op, s *move.Spec) (bool, error) {
	h, err := m.lastCopyOnto(ctx, starts, s.Dst.Path)
	if err != nil || h == nil || h.spec.LedByRegistry() || h.position() == move.OnDst {
		return false, err
	}
	if h.spec.DstPrint == "" || !location.SameImagePrint(h.spec.DstPrint, s.DstPrint) {
		return false, nil
	}
	last := h.find(move.GoalCancel)
	if last == nil {
		return false, nil
	}
	left := place.LeftDst(&last.Status)
	if left == nil {
		return false, nil
	}
	now, err := m.ports.Images.Stamp(ctx, s.Dst.Path)
	return err == nil && !now.WrittenSince(*left), err
}

// CheckAdoptable refuses an image that a volume has left by a move of this host, while that volume
// exists: it is the older copy, and its adoption must be forced. verdict begins the refusal.
func (m *Manager) CheckAdoptable(ctx context.Context, path, verdict string) error {
	h, err := m.leaverOf(ctx, path)
	if err != nil || h == nil {
		return err
	}
	vol, err := m.ports.Registry.Volume(ctx, h.spec.VolumeID)
	if api.CodeOf(err) == api.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	change, why, err := m.changeOf(ctx, h)
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
	_, ended := h.times()
	return api.Errorf(api.CodeConflict, "%s: %s is the source that volume %s has left by migration %s on %s; the volume is at %s now. %s. To have the older copy as a volume of its own, give --force",
		verdict, path, vol.Name, h.spec.MigrationID, ended.UTC().Format("2006-01-02 15:04:05 MST"), vol.Location.Path, state).
		With("migration_id", h.spec.MigrationID).With("volume_id", vol.ID)
}
