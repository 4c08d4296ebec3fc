// SPDX-License-Identifier: Apache-2.0

package migrate

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
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

const (
	// sourceWatchEvery is the interval of looks without an event, and sourceWatchAfter the delay
	// after one: a booting host starts its guests one after the other.
	sourceWatchEvery = time.Minute
	sourceWatchAfter = 500 * time.Millisecond
)

// WrittenSources returns, newest first, the released sources that may have data that their volumes
// lack: they were written since, or a guest runs on them. It checks the volumes with these ids, or
// all if none is given. A deleted volume has none. Sources that cannot be checked are in the error,
// which may come with results.
func (m *Manager) WrittenSources(ctx context.Context, volumeIDs ...string) ([]api.ReleasedSource, error) {
	found, _, err := m.findWritten(ctx, func(s *move.Spec) bool { return len(volumeIDs) == 0 || slices.Contains(volumeIDs, s.VolumeID) })
	return described(found), err
}

// KnownWrittenSources returns the result of WrittenSources at the watch's last look.
func (m *Manager) KnownWrittenSources() []api.ReleasedSource {
	m.sources.mu.Lock()
	defer m.sources.mu.Unlock()
	return described(m.sources.found)
}

// GuestsOnReleasedSources counts the released sources with a running guest at the watch's last
// look.
func (m *Manager) GuestsOnReleasedSources() int {
	n := 0
	for _, r := range m.KnownWrittenSources() {
		if r.RunBy != "" {
			n++
		}
	}
	return n
}

// WrittenSourceNote returns a note about an instance if one of its volumes has left a source that
// may have data that the volume lacks, at the watch's last look; otherwise "".
func (m *Manager) WrittenSourceNote(instanceID string) string {
	m.sources.mu.Lock()
	defer m.sources.mu.Unlock()
	i := slices.IndexFunc(m.sources.found, func(w writtenSource) bool { return slices.Contains(w.instances, instanceID) })
	if i < 0 {
		return ""
	}
	return m.sources.found[i].Difference() + "; volferryctl doctor says what can be done"
}

func described(found []writtenSource) []api.ReleasedSource {
	out := make([]api.ReleasedSource, 0, len(found))
	for i := range found {
		out = append(out, found[i].ReleasedSource)
	}
	return out
}

// WatchSources looks for written sources until ctx ends: soon after a guest was started or stopped,
// and at intervals. It adds each to the audit trail once.
func (m *Manager) WatchSources(ctx context.Context) error {
	events := m.ports.HV.Events(ctx)
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
				soon = time.After(sourceWatchAfter)
			}
			continue
		}
		soon = nil
		m.lookAtSources(ctx)
	}
}

// lookAtSources stores the written sources. A source that cannot be checked keeps its last result.
func (m *Manager) lookAtSources(ctx context.Context) {
	found, unknown, err := m.findWritten(ctx, func(*move.Spec) bool { return true })
	m.sources.mu.Lock()
	if err != nil && m.sources.failed != err.Error() && ctx.Err() == nil {
		m.sources.failed = err.Error()
		m.log.Warn("cannot see whether each released source was written", "err", err)
	}
	if err == nil {
		m.sources.failed = ""
	}
	for _, w := range m.sources.found {
		if err != nil && (unknown == nil || slices.Contains(unknown, w.MigrationID)) {
			found = append(found, w)
		}
	}
	m.sources.found = found
	m.sources.mu.Unlock()
	for i := range found {
		m.auditWritten(&found[i].ReleasedSource)
	}
}

// auditWritten adds to the audit trail that a source was written. Its op id is the same after a
// restart, so the trail has the event once.
func (m *Manager) auditWritten(r *api.ReleasedSource) {
	m.sources.mu.Lock()
	defer m.sources.mu.Unlock()
	if m.ports.Audit == nil || m.sources.noted[r.MigrationID] {
		return
	}
	if m.sources.noted == nil {
		m.sources.noted = map[string]bool{}
	}
	m.sources.noted[r.MigrationID] = true
	why := r.Difference()
	m.log.Warn("a released source may have what its volume lacks", "volume", r.VolumeName, "migration", r.MigrationID, "why", why)
	m.ports.Audit(api.EventPost{
		At: m.ports.Now(), What: "volume.source_written", Object: "volume/" + r.VolumeID,
		OpID: uuid.NewSHA1(uuid.NameSpaceOID, []byte("volume.source_written "+r.MigrationID)).String(),
		Details: map[string]any{
			"volume_name": r.VolumeName, "migration_id": r.MigrationID, "source": r.Location.Path, "path": r.VolumePath, "reason": request.EventReason(why),
		},
	})
}

// findWritten returns the written sources of the wanted migrations. If it fails, unknown has the
// migrations with sources that could not be checked, nil for all.
func (m *Manager) findWritten(ctx context.Context, wanted func(*move.Spec) bool) (found []writtenSource, unknown []string, err error) {
	all, err := m.kept(ctx, wanted)
	if err != nil || len(all) == 0 {
		return nil, nil, err
	}
	doms, err := m.readableDomains(ctx)
	if err != nil {
		return nil, nil, look.HVRefusal(err)
	}
	now := whoHas{
		claims: sync.OnceValues(func() (*location.Look, error) { return m.ports.Claims.Look(ctx) }),
		starts: sync.OnceValues(func() ([]op.Op, error) { return m.starts(ctx) }),
	}
	for _, h := range newestOfEach(all) {
		w, why := m.lookAtSource(ctx, h, doms, &now)
		switch {
		case why != nil:
			unknown = append(unknown, h.spec.MigrationID)
			err = errors.Join(err, fmt.Errorf("%s, which volume %s has left: %w", h.spec.Src.Path, h.spec.VolumeName, why))
		case w != nil:
			found = append(found, *w)
		}
	}
	return found, unknown, err
}

// whoHas reads, at most once and only if an image was written, the users of images and the
// migrations.
type whoHas struct {
	claims func() (*location.Look, error)
	starts func() ([]op.Op, error)
}

// lookAtSource describes the src that a migration has left, nil if it cannot have data that the
// volume lacks.
func (m *Manager) lookAtSource(ctx context.Context, h *history, doms []hv.Domain, now *whoHas) (*writtenSource, error) {
	change, _, err := m.changeOf(ctx, h)
	if err != nil {
		return nil, err
	}
	written := change == image.Changed
	runBy := runsOn(doms, h.spec.Src.Path)
	if !written && runBy == "" {
		return nil, nil
	}
	w, err := m.describeWritten(ctx, h, now)
	if w != nil {
		w.Written, w.RunBy = written, runBy
	}
	return w, err
}

// runsOn returns the name of an active domain that has the image at path as a live disk, "" if none
// is seen.
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

// describeWritten describes a src that was written after a migration has left it. It returns nil if
// that does not concern the volume: the image has another user, a later move has written to it, or
// the volume is deleted.
func (m *Manager) describeWritten(ctx context.Context, h *history, now *whoHas) (*writtenSource, error) {
	s := &h.spec
	claims, err := now.claims()
	if err != nil {
		return nil, look.HVRefusal(err)
	}
	unrecorded, err := m.holdsUnrecorded(ctx, h, claims)
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
	leaver, err := m.leaverAmong(ctx, starts, s.Src.Path)
	if err != nil || leaver == nil || leaver.spec.MigrationID != s.MigrationID {
		return nil, err
	}
	vol, err := m.ports.Registry.Volume(ctx, s.VolumeID)
	if api.CodeOf(err) == api.CodeNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ended, err := m.endOf(ctx, h)
	if err != nil {
		return nil, err
	}
	w := &writtenSource{ReleasedSource: releasedSource(s, ended)}
	w.VolumeName, w.VolumePath, w.Unrecorded = vol.Name, vol.Location.Path, unrecorded
	if unrecorded {
		w.VolumePath = h.chain()[0].Path
	}
	for i := range vol.Attachments {
		w.instances = append(w.instances, vol.Attachments[i].InstanceID)
	}
	return w, nil
}
