// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"slices"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// Left returns the paths of the images that a volume has left by moves of this host, but for
// those that are a volume's now, and for those that are seen to be gone. Its errors are those
// of registry and hypervisor.
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

// LeftAndWritten returns the images of Left that were written since the newest move that has
// left them, each once.
func (m *Manager) LeftAndWritten(ctx context.Context, volumeID string) ([]api.Location, error) {
	look, err := m.ports.Claims.Look(ctx)
	if err != nil {
		return nil, err
	}
	all, err := m.leavers(ctx, look, ofVolume(volumeID))
	if err != nil {
		return nil, err
	}
	var out []api.Location
	for _, h := range newestOfEach(all) {
		written, err := m.wasWritten(ctx, h)
		if err != nil {
			return nil, err
		}
		if written {
			out = append(out, h.spec.Src)
		}
	}
	return out, nil
}

func ofVolume(volumeID string) func(*steps.Spec) bool {
	return func(s *steps.Spec) bool { return s.VolumeID == volumeID }
}

// newestOfEach returns the newest of the migrations that have left each image, newest first.
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

// leavers returns those of the wanted migrations whose src is there and is no volume's now,
// oldest first. Only of the wanted ones the whole history is read.
func (m *Manager) leavers(ctx context.Context, look *location.Look, wanted func(*steps.Spec) bool) ([]*history, error) {
	starts, err := m.starts(ctx)
	if err != nil {
		return nil, err
	}
	var out []*history
	for _, o := range starts {
		s, err := specOf(o)
		if err != nil {
			return nil, err
		}
		if !wanted(&s) {
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
		src := h.spec.Src.Path
		holder, unknown := look.Holder(src, location.Self{})
		if left && (unknown != nil || holder.Volume == nil) && !m.isGone(ctx, h) {
			out = append(out, h)
		}
	}
	return out, nil
}

// isGone says whether the src of a migration is seen to be gone: nothing is at its path, or
// another image.
func (m *Manager) isGone(ctx context.Context, h *history) bool {
	now, err := m.ports.Images.Fingerprint(ctx, h.spec.Src.Path)
	if err != nil {
		return errors.Is(err, image.ErrAbsent)
	}
	return h.spec.SrcPrint != "" && !location.SameImagePrint(h.spec.SrcPrint, now)
}

// leftSource says whether a migration has left its src to nobody.
func (m *Manager) leftSource(ctx context.Context, h *history) (bool, error) {
	if h.spec.Method != steps.MethodSave {
		state, _ := h.state()
		return state.Final() && h.position() == steps.OnDst, nil
	}
	// Where it ended is the registry's word.
	mig, err := m.ports.Registry.Migration(ctx, h.spec.MigrationID)
	if api.CodeOf(err) == api.CodeNotFound {
		return false, nil
	}
	return mig.State == api.MigrationCompleted, err
}

// releasedInput describes the src that a migration has left, without any check.
func (m *Manager) releasedInput(ctx context.Context, h *history) (*steps.ReleasedInput, error) {
	_, ended := h.times()
	facts, err := steps.NewHistory(m.journal, m.runner.Status).Facts(ctx, &h.spec, "")
	if err != nil {
		return nil, request.Refused(err)
	}
	return &steps.ReleasedInput{Spec: h.spec, Seal: facts.Seal, EndedAt: ended}, nil
}

// leaverOf returns the newest migration of this host that has left the image at a path, nil
// if none has, or if a later one has begun to copy over it: what was there is gone then.
func (m *Manager) leaverOf(ctx context.Context, path string) (*history, error) {
	starts, err := m.starts(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range slices.Backward(starts) {
		s, err := specOf(o)
		if err != nil {
			return nil, err
		}
		isSrc, isDst := sameImage(s.Src.Path, path), sameImage(s.Dst.Path, path)
		if !isSrc && !isDst {
			continue
		}
		h, err := m.loadHistory(ctx, o.Group)
		if err != nil {
			return nil, err
		}
		if isDst && h.find(steps.GoalCopy) != nil {
			return nil, nil
		}
		if !isSrc {
			continue
		}
		left, err := m.leftSource(ctx, h)
		if err != nil {
			return nil, err
		}
		if left && !m.isGone(ctx, h) {
			return h, nil
		}
	}
	return nil, nil
}

// wasWritten says whether the src that a migration has left was written since.
func (m *Manager) wasWritten(ctx context.Context, h *history) (bool, error) {
	in, err := m.releasedInput(ctx, h)
	if err != nil {
		return false, err
	}
	return m.env.ReleasedWasWritten(ctx, in)
}

// checkNotWritten refuses to overwrite an image that a volume of this host has left and that
// was written since: it may be the only one that has what a guest wrote there.
func (m *Manager) checkNotWritten(ctx context.Context, path string) error {
	h, err := m.leaverOf(ctx, path)
	if err != nil || h == nil {
		return err
	}
	written, err := m.wasWritten(ctx, h)
	if err != nil || !written {
		return err
	}
	return api.Errorf(api.CodeDstInUse, "%s is the source that migration %s has left, and it was written since volume %s has left it, by a guest that was started on it perhaps: "+
		"it may have what the volume lacks, and is not overwritten; compare it with the volume, and then remove it yourself or choose another path", path, h.spec.MigrationID, h.spec.VolumeName).
		With("migration_id", h.spec.MigrationID)
}
