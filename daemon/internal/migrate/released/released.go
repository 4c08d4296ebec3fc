// SPDX-License-Identifier: Apache-2.0

package released

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/place"
	"github.com/volferry/volferry/daemon/internal/migrate/which"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// List returns the existing sources that moves of this host have left, newest first (DESIGN.md,
// section 11). volume is the id or name of one volume, or empty for all.
func (rs *Sources) List(ctx context.Context, volume string) ([]api.ReleasedSource, error) {
	claims, err := rs.claims.Look(ctx)
	if err != nil {
		return nil, look.HVRefusal(request.Refused(err))
	}
	all, err := rs.kept(ctx, func(s *move.Spec) bool { return volume == "" || s.VolumeID == volume || s.VolumeName == volume })
	if err != nil {
		return nil, err
	}
	doms, err := rs.readableDomains(ctx)
	if err != nil {
		return nil, look.HVRefusal(request.Refused(err))
	}
	out := []api.ReleasedSource{}
	for _, h := range newestOfEach(all) {
		unrecorded, err := rs.which.HoldsUnrecorded(ctx, h, claims)
		if err != nil {
			return nil, look.HVRefusal(request.Refused(err))
		}
		if isVolumes(claims, h) && !unrecorded {
			continue
		}
		r := rs.describeReleased(ctx, h, doms)
		if r.Unrecorded = unrecorded; unrecorded {
			r.VolumePath = h.Chain()[0].Path
		}
		out = append(out, r)
	}
	return out, nil
}

func (rs *Sources) describeReleased(ctx context.Context, h *history.Migration, doms []hv.Domain) api.ReleasedSource {
	s := &h.Spec
	in, err := rs.releasedInput(ctx, h)
	var ended time.Time
	if err == nil {
		ended = in.EndedAt
	}
	r := releasedSource(s, ended)
	if bytes, err := rs.images.AllocatedBytes(s.Src.Path); err == nil && s.SrcKind().Filesystem {
		r.AllocatedBytes = bytes
	}
	vol, unknown := rs.registry.Volume(ctx, s.VolumeID)
	if unknown == nil {
		r.VolumePath = vol.Location.Path
	}
	r.RunBy = runsOn(doms, s.Src.Path)
	if err == nil {
		change, why, unknown := rs.place.ReleasedChange(ctx, in)
		if unknown != nil {
			why = unknown.Error()
		}
		r.Written, r.WrittenUnknown = change == image.Changed, why
		err = rs.checkReleased(ctx, in, vol, unknown)
	}
	if err != nil {
		r.Blocked = err.Error()
	}
	return r
}

// checkReleased makes all checks before the deletion of a source. vol and unknown are the volume
// and the error that the registry returned.
func (rs *Sources) checkReleased(ctx context.Context, in *place.ReleasedInput, vol api.Volume, unknown error) error {
	if err := rs.place.CheckReleased(ctx, in); err != nil {
		return look.HVRefusal(request.Refused(err))
	}
	if api.CodeOf(unknown) == api.CodeNotFound {
		return nil
	}
	if unknown != nil {
		return unknown
	}
	return rs.checkVolumeOfReleased(ctx, &in.Spec, vol)
}

// checkVolumeOfReleased refuses to delete src while the volume's image is missing, or while an
// instance of this host has the volume and no copy is known to have every write: src may be the
// only copy, or the guest may need it.
func (rs *Sources) checkVolumeOfReleased(ctx context.Context, s *move.Spec, vol api.Volume) error {
	if rs.which.Reaches(ctx, vol) {
		if path := rs.which.AbsentOf(ctx, history.WithBases(vol.Location)); path != "" {
			return api.Errorf(api.CodeChainChanged, "cannot delete %s, which migration %s has left: volume %s is to be at %s, and there is no image (%s), so this may be the only copy",
				s.Src.Path, s.MigrationID, vol.Name, path, which.AbsentHint(path))
		}
	}
	w, err := rs.which.Find(ctx, vol)
	if err != nil {
		return err
	}
	if w.Authoritative == nil && (w.Live != nil || w.Persistent != nil) {
		return api.Errorf(api.CodeChainChanged, "cannot delete %s, which migration %s has left: nobody can tell which copy of volume %s is the good one: %s",
			s.Src.Path, s.MigrationID, vol.Name, w.Explanation)
	}
	return nil
}

// Delete deletes the src that a migration of this host has left, and returns its description. ref
// is the migration's id or its beginning. Delete refuses a src that is used, was written since, or
// is no longer the moved image; without force also a src that may have been written. A repeated
// request gets the same answer. Delete continues an earlier deletion of this source that waits for
// the operator.
func (rs *Sources) Delete(ctx context.Context, opID, ref string, force bool) (api.ReleasedSource, error) {
	var body any = ref
	if force {
		body = forcedDeletion{Migration: ref, Force: true}
	}
	_, err := rs.admission.Submit(ctx, request.Request{
		OpID: opID, Kind: place.KindDeleteSource, Body: body,
		Decide: func(ctx context.Context) (_ request.Input, err error) {
			parked, err := rs.parkedDeletion(ctx, ref)
			if err != nil {
				return nil, err
			}
			if parked != "" {
				opID = parked
				return nil, request.ErrServed
			}
			return rs.decideDeleteSource(ctx, ref, force)
		},
	})
	if errors.Is(err, request.ErrServed) {
		err = rs.continueDeletion(ctx, opID)
	}
	if err != nil {
		return api.ReleasedSource{}, err
	}
	st, err := rs.admission.End(ctx, opID, fmt.Sprintf("the source of migration %.64s is being deleted", ref))
	if err != nil {
		return api.ReleasedSource{}, err
	}
	return releasedBy(st.Op)
}

type forcedDeletion struct {
	Migration string `json:"migration"`
	Force     bool   `json:"force"`
}

func (rs *Sources) parkedDeletions() []op.Status {
	return slices.DeleteFunc(rs.runner.Active(), func(st op.Status) bool {
		return st.Op.Kind != place.KindDeleteSource || st.State != op.StateNeedsOperator
	})
}

func (rs *Sources) parkedDeletion(ctx context.Context, ref string) (opID string, err error) {
	id, err := rs.history.Resolve(ctx, ref)
	if err != nil {
		return "", err
	}
	for _, st := range rs.parkedDeletions() {
		if was, err := releasedBy(st.Op); err == nil && was.MigrationID == id {
			return st.Op.ID, nil
		}
	}
	return "", nil
}

func (rs *Sources) continueDeletion(ctx context.Context, opID string) error {
	err := rs.runner.Continue(ctx, opID)
	if err == nil || errors.Is(err, op.ErrNotParked) || errors.Is(err, op.ErrFinished) {
		return nil
	}
	return request.JournalError(err)
}

// ContinueDeletions continues an earlier daemon's deletions that wait for the operator.
func (rs *Sources) ContinueDeletions(ctx context.Context) {
	for _, st := range rs.parkedDeletions() {
		if err := rs.continueDeletion(ctx, st.Op.ID); err != nil {
			rs.log.Warn("the deletion of a source cannot go on", "op", st.Op.ID, "err", err)
		}
	}
}

func (rs *Sources) decideDeleteSource(ctx context.Context, ref string, force bool) (request.Input, error) {
	id, err := rs.history.Resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	h, err := rs.history.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	left, err := rs.leftSource(ctx, h)
	if err != nil {
		return nil, err
	}
	if err := rs.deletedBefore(ctx, h); err != nil {
		return nil, err
	}
	if !left {
		state, _ := h.ShownState()
		return nil, api.Errorf(api.CodeStateForbidden, "cannot delete the source of migration %s of volume %s: it is %s, and only a completed migration has left its source", id, h.Spec.VolumeName, state).With("state", state)
	}
	if err := rs.checkNotCopiedOver(ctx, h); err != nil {
		return nil, err
	}
	in, err := rs.releasedInput(ctx, h)
	if err != nil {
		return nil, err
	}
	in.Force = force
	vol, unknown := rs.registry.Volume(ctx, h.Spec.VolumeID)
	if err := rs.checkReleased(ctx, in, vol, unknown); err != nil {
		return nil, err
	}
	return in, nil
}

func (rs *Sources) checkNotCopiedOver(ctx context.Context, h *history.Migration) error {
	starts, err := rs.history.Starts(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(starts, func(o op.Op) bool { return o.Group == h.Spec.MigrationID })
	over, err := rs.lastCopyOnto(ctx, starts[i+1:], h.Spec.Src.Path)
	if err != nil || over == nil {
		return err
	}
	return api.Errorf(api.CodeNotFound, "the source of migration %s of volume %s, %s, is gone: migration %s of volume %s has copied over it",
		h.Spec.MigrationID, h.Spec.VolumeName, h.Spec.Src.Path, over.Spec.MigrationID, over.Spec.VolumeName)
}

func (rs *Sources) deletedBefore(ctx context.Context, h *history.Migration) error {
	deletions, err := rs.journal.Ops(ctx, place.KindDeleteSource, false)
	if err != nil {
		return request.JournalError(err)
	}
	for _, o := range deletions {
		was, err := releasedBy(o)
		if err != nil || was.MigrationID != h.Spec.MigrationID {
			continue
		}
		st, err := rs.runner.Status(ctx, o.ID)
		if err != nil {
			return request.JournalError(err)
		}
		if st.State == op.StateDone {
			return api.Errorf(api.CodeNotFound, "the source of migration %s of volume %s, %s, was deleted already, at %s",
				was.MigrationID, was.VolumeName, was.Location.Path, st.FinishedAt.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

func releasedBy(o op.Op) (api.ReleasedSource, error) {
	var in place.ReleasedInput
	if err := json.Unmarshal(o.Input, &in); err != nil {
		return api.ReleasedSource{}, fmt.Errorf("read the input of op %s: %w", o.ID, err)
	}
	return releasedSource(&in.Spec, in.EndedAt), nil
}
