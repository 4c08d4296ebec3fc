// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

const (
	// fullBelow: a filesystem with less free than this counts as full. QEMU asks for more
	// than a byte at a time, and filesystems keep some blocks for themselves.
	fullBelow = 16 << 20
	// enoughRoom has to be free before a guest that an I/O error has paused is resumed.
	enoughRoom = 64 << 20

	// resumeDelay is how long a guest is not resumed again after it was resumed. It is
	// doubled each time that the guest is paused again within that time, up to
	// maxResumeDelay.
	resumeDelay    = 30 * time.Second
	maxResumeDelay = 10 * time.Minute
)

// enospc is the reason that the hypervisor gives for an I/O error for want of room.
const enospc = "enospc"

// WatchOverlays looks, until ctx ends, for guests that an I/O error has paused while their
// newest writes are in an overlay. It resumes a guest when there is room again for an overlay
// that had none. It touches no guest that a person or an op has paused.
func (m *Manager) WatchOverlays(ctx context.Context) error {
	events := m.ports.HV.Events(ctx)
	for e, more := (hv.Event{}), true; more; e, more = m.nextOverlayEvent(ctx, events) {
		m.lookAtOverlays(ctx, e)
	}
	return nil
}

// nextOverlayEvent waits for an event by which a guest may have been paused, or until it is
// time to look at all guests, which is the zero event.
func (m *Manager) nextOverlayEvent(ctx context.Context, events <-chan hv.Event) (e hv.Event, more bool) {
	tick := time.NewTimer(m.ioStops.every())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return e, false
		case <-tick.C:
			return hv.Event{}, true
		case e, more = <-events:
			if !more || e.Kind == hv.EventLifecycle && !besideIOErrors(e) || e.Kind == hv.EventIOError {
				return e, more
			}
			if e.Kind == hv.EventConnected {
				return hv.Event{}, true
			}
		}
	}
}

// besideIOErrors says of a lifecycle event that it is not for want of room: an I/O error that
// pauses a guest has an event of its own. These come in the pause of a switch, which a look would
// make longer: libvirt answers one question about a domain at a time.
func besideIOErrors(e hv.Event) bool { return e.Detail == "suspended" || e.Detail == "defined" }

func (m *Manager) lookAtOverlays(ctx context.Context, e hv.Event) {
	seen := map[string]bool{}
	err := m.eachOpen(ctx, func(h *history) error {
		s := &h.spec
		seen[s.MigrationID] = true
		switch {
		case s.Overlay == "" || !s.Attached() || e.DomainID != "" && e.DomainID != s.InstanceID:
		case !h.onOverlay():
			m.ioStops.set(s.MigrationID, nil)
		default:
			m.lookAtOverlay(ctx, s, e.Kind == hv.EventIOError && e.Detail == enospc && e.Path == s.Overlay)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		m.log.Warn("cannot look at the overlays of what is migrated", "err", err)
	}
	if err == nil {
		m.ioStops.keep(seen)
	}
}

// lookAtOverlay looks at one guest. NoRoom says that the hypervisor has just reported that
// there is no room for its overlay.
func (m *Manager) lookAtOverlay(ctx context.Context, s *steps.Spec, noRoom bool) {
	dom, err := m.ports.HV.Domain(ctx, s.InstanceID)
	was := m.ioStops.get(s.MigrationID)
	switch {
	case errors.Is(err, hv.ErrNotFound):
		m.ioStops.set(s.MigrationID, nil)
		return
	case err != nil:
		return // what was seen before stands
	}
	if !stoppedByIO(dom) {
		m.noteRunning(s, was)
		return
	}
	free, err := m.overlayFreeBytes(ctx, filepath.Dir(s.Overlay), s)
	if err != nil {
		m.log.Warn("cannot see how much room an overlay has", "overlay", s.Overlay, "err", err)
		return
	}
	is := ioStop{}
	if was != nil {
		is = *was
	}
	is.full = is.full || noRoom || free < fullBelow
	is.text = ioStopText(s, is.full, free)
	if was == nil || was.text == "" {
		m.log.Error("a guest stands still", "instance", s.InstanceName, "migration", s.MigrationID, "why", is.text)
		m.auditGuest(s, "guest.io_error", map[string]any{"overlay": s.Overlay, "full": is.full})
	}
	m.ioStops.set(s.MigrationID, &is)
	if was == nil || was.text != is.text {
		m.watch.notify(s.MigrationID)
	}
	if is.full && free >= enoughRoom && !m.ports.Now().Before(is.resumeAfter) {
		m.runner.TryLock([]string{s.Key(), request.PowerKey(s.InstanceID)}, func() { m.resumeGuest(ctx, s, is) })
	}
}

// stoppedByIO reports whether an I/O error has paused the guest, and nobody else.
func stoppedByIO(dom *hv.Domain) bool {
	return dom.State == hv.StatePaused && dom.PauseReason == hv.PauseIOError
}

// noteRunning notes that a guest runs. A guest that was resumed is remembered as long as it
// must not be resumed again.
func (m *Manager) noteRunning(s *steps.Spec, was *ioStop) {
	if was == nil {
		return
	}
	if m.ports.Now().Before(was.resumeAfter) {
		m.ioStops.set(s.MigrationID, &ioStop{resumes: was.resumes, resumeAfter: was.resumeAfter})
	} else {
		m.ioStops.set(s.MigrationID, nil)
	}
	if was.text != "" {
		m.watch.notify(s.MigrationID)
	}
}

// resumeGuest resumes a guest for whose overlay there is room again. The caller holds the
// keys of the instance, so that no op has paused the guest or is about to.
func (m *Manager) resumeGuest(ctx context.Context, s *steps.Spec, is ioStop) {
	if err := m.env.StillOurs(ctx, s); err != nil {
		m.log.Warn("a guest stands still and is not resumed", "instance", s.InstanceName, "migration", s.MigrationID, "err", err)
		return
	}
	dom, err := m.ports.HV.Domain(ctx, s.InstanceID)
	if err != nil || !stoppedByIO(dom) || dom.Occupied {
		return // it is looked at again
	}
	is.resumeAfter = m.ports.Now().Add(min(resumeDelay<<min(is.resumes, 10), maxResumeDelay))
	is.resumes++
	m.ioStops.set(s.MigrationID, &is)
	if err := m.ports.HV.Resume(ctx, s.InstanceID); err != nil {
		m.log.Warn("cannot resume a guest that stands still", "instance", s.InstanceName, "migration", s.MigrationID, "err", err)
		return
	}
	m.log.Info("there is room for the overlay again, and its guest is resumed", "instance", s.InstanceName, "migration", s.MigrationID, "time", is.resumes)
	m.auditGuest(s, "guest.resume", map[string]any{"overlay": s.Overlay, "time": is.resumes})
	m.noteRunning(s, &is)
}

// auditGuest tells the audit trail what happened to the guest of a migration.
func (m *Manager) auditGuest(s *steps.Spec, what string, details map[string]any) {
	if m.ports.Audit == nil {
		return
	}
	details["migration_id"] = s.MigrationID
	m.ports.Audit(api.EventPost{At: m.ports.Now(), What: what, Object: "instance/" + s.InstanceID, OpID: uuid.NewString(), Details: details})
}

func ioStopText(s *steps.Spec, full bool, free int64) string {
	dir := filepath.Dir(s.Overlay)
	if !full {
		return fmt.Sprintf("instance %s is paused by an I/O error, and the overlay in %s was not seen without room (%d MiB free): look at its storage (`%s`), then `%s`",
			s.InstanceName, dir, free>>20, api.ShellLine("virsh", "domblkerror", "--", s.InstanceName), api.ShellLine("virsh", "resume", "--", s.InstanceName))
	}
	return fmt.Sprintf("instance %s is paused: there is no room for its overlay in %s (%d MiB free); make room, and it goes on by itself from %d MiB, or complete or cancel the migration",
		s.InstanceName, dir, free>>20, enoughRoom>>20)
}
