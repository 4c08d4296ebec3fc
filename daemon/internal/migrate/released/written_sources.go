// SPDX-License-Identifier: Apache-2.0

package released

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

const (
	sourceWatchEvery = time.Minute
	// SourceWatchAfter delays a look after an event: a booting host starts its guests one after
	// the other.
	SourceWatchAfter = 500 * time.Millisecond
)

// WrittenSources returns, newest first, the sources that moves have left and that may have data
// that their volumes lack: a source was written since its move, or a guest runs on it. It checks
// the volumes with these ids, or all, and omits sources of deleted volumes. The error names the
// sources that cannot be checked, and may come with results.
func (rs *Sources) WrittenSources(ctx context.Context, volumeIDs ...string) ([]api.ReleasedSource, error) {
	found, _, err := rs.findWritten(ctx, func(s *move.Spec) bool { return len(volumeIDs) == 0 || slices.Contains(volumeIDs, s.VolumeID) })
	return described(found), err
}

// KnownWrittenSources returns the result of WrittenSources at the last look of WatchSources.
func (rs *Sources) KnownWrittenSources() []api.ReleasedSource {
	rs.sources.mu.Lock()
	defer rs.sources.mu.Unlock()
	return described(rs.sources.found)
}

// GuestsOnReleasedSources counts the sources that moves have left and that a guest runs on, at the
// last look of WatchSources.
func (rs *Sources) GuestsOnReleasedSources() int {
	n := 0
	for _, r := range rs.KnownWrittenSources() {
		if r.RunBy != "" {
			n++
		}
	}
	return n
}

// WrittenSourceNote returns a note if the last look of WatchSources has found a written source of
// one of this instance's volumes; otherwise "".
func (rs *Sources) WrittenSourceNote(instanceID string) string {
	rs.sources.mu.Lock()
	defer rs.sources.mu.Unlock()
	i := slices.IndexFunc(rs.sources.found, func(w writtenSource) bool { return slices.Contains(w.instances, instanceID) })
	if i < 0 {
		return ""
	}
	return rs.sources.found[i].Difference() + "; volferryctl doctor says what can be done"
}

func described(found []writtenSource) []api.ReleasedSource {
	out := make([]api.ReleasedSource, 0, len(found))
	for i := range found {
		out = append(out, found[i].ReleasedSource)
	}
	return out
}

// WatchSources looks for sources that were written after their move, until ctx ends: soon after a
// guest was started or stopped, and at intervals. It adds each written source to the audit trail
// once.
func (rs *Sources) WatchSources(ctx context.Context) error {
	events := rs.hv.Events(ctx)
	tick := time.NewTicker(sourceWatchEvery)
	defer tick.Stop()
	soon := time.After(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-soon:
		case e, open := <-events:
			if !open {
				return nil
			}
			if soon == nil && (e.Kind == hv.EventLifecycle || e.Kind == hv.EventConnected) {
				soon = time.After(SourceWatchAfter)
			}
			continue
		}
		soon = nil
		rs.lookAtSources(ctx)
	}
}

// lookAtSources finds and stores the written sources. A source that cannot be checked keeps its
// last result.
func (rs *Sources) lookAtSources(ctx context.Context) {
	found, unknown, err := rs.findWritten(ctx, func(*move.Spec) bool { return true })
	rs.sources.mu.Lock()
	if err != nil && rs.sources.failed != err.Error() && ctx.Err() == nil {
		rs.sources.failed = err.Error()
		rs.log.Warn("cannot see whether each released source was written", "err", err)
	}
	if err == nil {
		rs.sources.failed = ""
	}
	for _, w := range rs.sources.found {
		if err != nil && (unknown == nil || slices.Contains(unknown, w.MigrationID)) {
			found = append(found, w)
		}
	}
	rs.sources.found = found
	rs.sources.mu.Unlock()
	for i := range found {
		rs.auditWritten(&found[i].ReleasedSource)
	}
}

// auditWritten adds an event to the audit trail: a source was written. The event's op id is the
// same after a restart, so the trail has the event only once.
func (rs *Sources) auditWritten(r *api.ReleasedSource) {
	rs.sources.mu.Lock()
	defer rs.sources.mu.Unlock()
	if rs.audit == nil || rs.sources.noted[r.MigrationID] {
		return
	}
	if rs.sources.noted == nil {
		rs.sources.noted = map[string]bool{}
	}
	rs.sources.noted[r.MigrationID] = true
	why := r.Difference()
	rs.log.Warn("a released source may have what its volume lacks", "volume", r.VolumeName, "migration", r.MigrationID, "why", why)
	rs.audit(api.EventPost{
		At: rs.now(), What: "volume.source_written", Object: "volume/" + r.VolumeID,
		OpID: uuid.NewSHA1(uuid.NameSpaceOID, []byte("volume.source_written "+r.MigrationID)).String(),
		Details: map[string]any{
			"volume_name": r.VolumeName, "migration_id": r.MigrationID, "source": r.Location.Path, "path": r.VolumePath, "reason": request.EventReason(why),
		},
	})
}

// findWritten returns the written sources of the wanted migrations. With an error, unknown has the
// ids of the migrations with an unchecked source; nil means all migrations.
func (rs *Sources) findWritten(ctx context.Context, wanted func(*move.Spec) bool) (found []writtenSource, unknown []string, err error) {
	all, err := rs.kept(ctx, wanted)
	if err != nil || len(all) == 0 {
		return nil, nil, err
	}
	doms, err := rs.readableDomains(ctx)
	if err != nil {
		return nil, nil, look.HVRefusal(err)
	}
	now := whoHas{
		claims: sync.OnceValues(func() (*location.Look, error) { return rs.claims.Look(ctx) }),
		starts: sync.OnceValues(func() ([]op.Op, error) { return rs.history.Starts(ctx) }),
	}
	for _, h := range newestOfEach(all) {
		w, why := rs.lookAtSource(ctx, h, doms, &now)
		switch {
		case why != nil:
			unknown = append(unknown, h.Spec.MigrationID)
			err = errors.Join(err, fmt.Errorf("%s, which volume %s has left: %w", h.Spec.Src.Path, h.Spec.VolumeName, why))
		case w != nil:
			found = append(found, *w)
		}
	}
	return found, unknown, err
}

// whoHas reads the users of images and the migrations' first ops at most once, and only if an
// image was written.
type whoHas struct {
	claims func() (*location.Look, error)
	starts func() ([]op.Op, error)
}

// lookAtSource describes the src that a migration has left, or returns nil if src cannot have data
// that the volume lacks.
func (rs *Sources) lookAtSource(ctx context.Context, h *history.Migration, doms []hv.Domain, now *whoHas) (*writtenSource, error) {
	change, _, err := rs.changeOf(ctx, h)
	if err != nil {
		return nil, err
	}
	written := change == image.Changed
	runBy := runsOn(doms, h.Spec.Src.Path)
	if !written && runBy == "" {
		return nil, nil
	}
	w, err := rs.describeWritten(ctx, h, now)
	if w != nil {
		w.Written, w.RunBy = written, runBy
	}
	return w, err
}

func runsOn(doms []hv.Domain, path string) string {
	for i := range doms {
		running := hv.Domain{Name: doms[i].Name, Live: doms[i].Live}
		if !doms[i].State.Active() {
			continue
		}
		if name, _, _ := location.DiskOf([]hv.Domain{running}, path); name != "" {
			return name
		}
	}
	return ""
}

// describeWritten describes a src that was written after its migration. It returns nil if the
// write does not concern the volume: the image has another user, a later move has written to it,
// or the volume is deleted.
func (rs *Sources) describeWritten(ctx context.Context, h *history.Migration, now *whoHas) (*writtenSource, error) {
	s := &h.Spec
	claims, err := now.claims()
	if err != nil {
		return nil, look.HVRefusal(err)
	}
	unrecorded, err := rs.which.HoldsUnrecorded(ctx, h, claims)
	if err != nil {
		return nil, err
	}
	if holder, unknown := claims.Holder(s.Src.Path, location.Self{}); !unrecorded && unknown == nil && (holder.Volume != nil || holder.MigrationID != "") {
		return nil, nil
	}
	starts, err := now.starts()
	if err != nil {
		return nil, err
	}
	leaver, err := rs.leaverAmong(ctx, starts, s.Src.Path)
	if err != nil || leaver == nil || leaver.Spec.MigrationID != s.MigrationID {
		return nil, err
	}
	vol, err := rs.registry.Volume(ctx, s.VolumeID)
	if api.CodeOf(err) == api.CodeNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ended, err := rs.endOf(ctx, h)
	if err != nil {
		return nil, err
	}
	w := &writtenSource{ReleasedSource: releasedSource(s, ended)}
	w.VolumeName, w.VolumePath, w.Unrecorded = vol.Name, vol.Location.Path, unrecorded
	if unrecorded {
		w.VolumePath = h.Chain()[0].Path
	}
	for i := range vol.Attachments {
		w.instances = append(w.instances, vol.Attachments[i].InstanceID)
	}
	return w, nil
}
