// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/internal/humanize"
)

const (
	// RoomWatchEvery is the interval of looks at the free space for overlays, if guests are
	// limited for it; the space can run out within seconds.
	RoomWatchEvery = time.Second
	// leftLimitEvery is the interval of looks for remaining limits, if no guest is limited.
	leftLimitEvery = 30 * time.Second
	// RoomBack determines when limits are removed: ThrottleBelowBytes/RoomBack must be free in
	// addition to ThrottleBelowBytes.
	RoomBack = 4
	// limitStep determines the smallest change of a limit that is set: limit/limitStep.
	limitStep = 5
)

// LeftLimits describes the limits on guests' writes that could not be removed.
func (m *Monitor) LeftLimits() []string {
	m.slowed.mu.Lock()
	defer m.slowed.mu.Unlock()
	return m.slowed.left
}

// WatchRoom limits, until ctx ends, the guests' writes to overlays while the free space is short
// (Config.ThrottleBelowBytes). It removes the limits that an earlier daemon or configuration has
// left.
func (m *Monitor) WatchRoom(ctx context.Context) error {
	every := leftLimitEvery
	if m.cfg.ThrottleBelowBytes > 0 {
		every = RoomWatchEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := m.lookAtRoom(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, hv.ErrUnavailable) {
			m.log.Warn("cannot see to it that guests do not fill the room for overlays", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (m *Monitor) lookAtRoom(ctx context.Context) error {
	limits, err := m.blockjob.WriteLimits(ctx)
	if err != nil {
		return err
	}
	if len(limits) == 0 {
		if m.cfg.ThrottleBelowBytes == 0 {
			return nil
		}
		if free, err := m.preflight.FreeBytesFor(ctx, m.cfg.OverlayDir, nil); err != nil || free >= m.cfg.ThrottleBelowBytes {
			return err
		}
	}
	var writers []*history.Migration
	if err := m.history.EachOpen(ctx, func(h *history.Migration) error {
		switch {
		case h.Spec.Overlay == "" || !h.Spec.Attached():
		case h.OnOverlay():
			writers = append(writers, h)
		case h.Running() != nil:
			delete(limits, h.Spec.MigrationID) // the op removes this limit, and reports another program's
		}
		return nil
	}); err != nil {
		return err
	}
	texts := map[string]string{}
	rooms := map[string]*Room{}
	var failures error
	for _, h := range writers {
		dir := filepath.Dir(h.Spec.Overlay)
		r, looked := rooms[dir]
		if !looked {
			if r, err = m.lookAtRoomIn(ctx, dir, writers, limits); err != nil {
				failures = errors.Join(failures, err)
			}
			rooms[dir] = r
		}
		if r == nil { // the present limit stays
			texts[h.Spec.MigrationID] = m.slowed.text(h.Spec.MigrationID)
			continue
		}
		text, err := m.slow(ctx, h, r, limits[h.Spec.MigrationID])
		failures = errors.Join(failures, err)
		if text != "" {
			texts[h.Spec.MigrationID] = text
		}
		delete(limits, h.Spec.MigrationID)
	}
	left, err := m.takeOffLimits(ctx, limits, writers)
	for _, id := range m.slowed.set(texts, left) {
		m.watch.Notify(id)
	}
	return errors.Join(failures, err)
}

// Room is the free space in a directory of overlays, and the limit of each guest there; 0 is no
// limit.
type Room struct {
	dir            string
	free           int64
	bytesPerSecond int64
}

// lookAtRoomIn computes the limit of guests with overlays in a directory: an equal share of the
// free space divided by ThrottleFor, but enough for a commit to end.
func (m *Monitor) lookAtRoomIn(ctx context.Context, dir string, writers []*history.Migration, limits map[string]blockjob.WriteLimit) (*Room, error) {
	free, err := m.preflight.FreeBytesFor(ctx, dir, nil)
	if err != nil {
		return nil, err
	}
	r := &Room{dir: dir, free: free}
	below, slowing := m.cfg.ThrottleBelowBytes, false
	var running int64
	for _, h := range writers {
		if filepath.Dir(h.Spec.Overlay) != dir {
			continue
		}
		slowing = slowing || limits[h.Spec.MigrationID].Space > 0
		dom, err := m.hv.Domain(ctx, h.Spec.InstanceID)
		switch {
		case errors.Is(err, hv.ErrNotFound):
		case err != nil:
			return nil, err
		case dom.State.Active():
			running++
		}
	}
	if below == 0 || free >= below+below/RoomBack || free >= below && !slowing {
		return r, nil
	}
	each := free / max(1, int64(m.cfg.ThrottleFor/time.Second)) / max(1, running)
	r.bytesPerSecond = max(blockjob.ThrottleBytesPerSecond, each>>10<<10)
	return r, nil
}

func (m *Monitor) slow(ctx context.Context, h *history.Migration, r *Room, was blockjob.WriteLimit) (string, error) {
	s := &h.Spec
	to := r.bytesPerSecond
	if to == 0 && was.Space == 0 {
		return "", nil
	}
	if differ := max(to-was.Space, was.Space-to); to > 0 && was.Space > 0 && differ < was.Space/limitStep {
		to = was.Space
	}
	l, err := m.blockjob.LimitForSpace(ctx, s, to, func() (bool, error) { return m.stillOnOverlay(ctx, s) })
	if err != nil {
		return m.slowed.text(s.MigrationID), err
	}
	if (l.Space > 0) != (was.Space > 0) {
		what := "guest.throttle"
		if l.Space == 0 {
			what = "guest.unthrottle"
		}
		m.log.Info("the room for overlays has changed what a guest may write", "instance", s.InstanceName, "migration", s.MigrationID, "bytes_per_second", l.Space, "free_bytes", r.free)
		m.auditGuest(s, what, map[string]any{"overlay": s.Overlay, "bytes_per_second": l.Space, "free_bytes": r.free})
	}
	return m.SlowText(s, r, &l), nil
}

func (m *Monitor) stillOnOverlay(ctx context.Context, s *move.Spec) (bool, error) {
	h, err := m.history.Load(ctx, s.MigrationID)
	if err != nil || !h.OnOverlay() {
		return false, err
	}
	dom, err := m.hv.Domain(ctx, s.InstanceID)
	if errors.Is(err, hv.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return dom.State.Active() && move.PositionOf(s, dom.LiveDisk(s.Target)) == move.OnOverlay, nil
}

// SlowText describes a guest's write limit that protects the space for overlays, or returns "".
func (m *Monitor) SlowText(s *move.Spec, r *Room, l *blockjob.WriteLimit) string {
	if l.Space == 0 {
		return ""
	}
	below := m.cfg.ThrottleBelowBytes
	why := fmt.Sprintf("%s has %s free (overlay_throttle_below_bytes: %s)", r.dir, humanize.Bytes(r.free), humanize.Bytes(below))
	switch {
	case l.Refused:
		return fmt.Sprintf("instance %s is not slowed down, though %s: its disk %s has a limit on reads and writes together", s.InstanceName, why, s.Target)
	case l.Theirs != nil:
		return fmt.Sprintf("instance %s is not slowed down, though %s: somebody has changed the limit on the writes of its disk %s, to %d bytes per second (0 is none), and it is left so", s.InstanceName, why, s.Target, *l.Theirs)
	case l.Is == l.Before:
		return "" // the owner's limit is lower
	}
	disk := s.Target
	if len(l.With) > 0 {
		disk = fmt.Sprintf("%s, and to %s, which share its throttle group, together", s.Target, strings.Join(l.With, ", "))
	}
	return fmt.Sprintf("instance %s may write %s/s to disk %s, since %s; at full speed again from %s, or when the migration has ended",
		s.InstanceName, humanize.Bytes(l.Is), disk, why, humanize.Bytes(below+below/RoomBack))
}

// takeOffLimits removes the limits of guests that no longer write to their migrations' overlays,
// and describes the limits that remain.
func (m *Monitor) takeOffLimits(ctx context.Context, limits map[string]blockjob.WriteLimit, writers []*history.Migration) (left []string, failures error) {
	for _, h := range writers {
		delete(limits, h.Spec.MigrationID)
	}
	for id, l := range limits {
		if l.Space == 0 && l.Commit > 0 {
			continue // its op removes it
		}
		s := &move.Spec{MigrationID: id, InstanceID: l.InstanceID, InstanceName: l.InstanceName, Target: l.Target}
		if _, err := m.blockjob.LimitForSpace(ctx, s, 0, nil); err != nil {
			failures = errors.Join(failures, err)
			left = append(left, fmt.Sprintf("disk %s of instance %s may write %d bytes per second, and had a limit of %d (0 is none) before migration %s", l.Target, l.InstanceName, l.Is, l.Before, id))
		}
	}
	return left, failures
}

// Throttled describes the write limit of a migration's guest, or "".
func (m *Monitor) Throttled(migrationID string) string { return m.slowed.text(migrationID) }
