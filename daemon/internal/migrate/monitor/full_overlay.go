// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

const (
	// fullBelow is the free space below which a filesystem counts as full: QEMU needs more than a
	// byte at a time, and filesystems reserve some blocks.
	fullBelow = 16 << 20
	// EnoughRoom has to be free before a guest is resumed after an I/O error.
	EnoughRoom = 64 << 20

	// resumeDelay is how long a resumed guest is not resumed again. The delay doubles each time
	// that the guest is paused within it, up to maxResumeDelay.
	resumeDelay    = 30 * time.Second
	maxResumeDelay = 10 * time.Minute
)

const enospc = "enospc"

// WatchOverlays looks, until ctx ends, for guests that an I/O error has paused while an overlay
// has their newest writes. It resumes a guest when its full overlay has space again. It never
// resumes a guest that a person or an op has paused.
func (m *Monitor) WatchOverlays(ctx context.Context) error {
	events := m.hv.Events(ctx)
	for e, more := (hv.Event{}), true; more; e, more = m.nextOverlayEvent(ctx, events) {
		m.lookAtOverlays(ctx, e)
	}
	return nil
}

// nextOverlayEvent waits for an event that may come with a paused guest. When it is time to look
// at all guests, it returns the zero event.
func (m *Monitor) nextOverlayEvent(ctx context.Context, events <-chan hv.Event) (e hv.Event, more bool) {
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

// besideIOErrors reports whether a lifecycle event cannot come from an I/O error. Such an event
// may come from the pause of a switch. A look at the guest would prolong that pause: libvirt
// answers one question about a domain at a time.
func besideIOErrors(e hv.Event) bool { return e.Detail == "suspended" || e.Detail == "defined" }

func (m *Monitor) lookAtOverlays(ctx context.Context, e hv.Event) {
	seen := map[string]bool{}
	err := m.history.EachOpen(ctx, func(h *history.Migration) error {
		s := &h.Spec
		seen[s.MigrationID] = true
		switch {
		case s.Overlay == "" || !s.Attached() || e.DomainID != "" && e.DomainID != s.InstanceID:
		case !h.OnOverlay():
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

// lookAtOverlay looks at one guest. noRoom means that the hypervisor has reported a full overlay.
func (m *Monitor) lookAtOverlay(ctx context.Context, s *move.Spec, noRoom bool) {
	dom, err := m.hv.Domain(ctx, s.InstanceID)
	was := m.ioStops.get(s.MigrationID)
	switch {
	case errors.Is(err, hv.ErrNotFound):
		m.ioStops.set(s.MigrationID, nil)
		return
	case err != nil:
		return
	}
	if !stoppedByIO(dom) {
		m.noteRunning(s, was)
		return
	}
	free, err := m.preflight.FreeBytesFor(ctx, filepath.Dir(s.Overlay), s)
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
		m.watch.Notify(s.MigrationID)
	}
	if is.full && free >= EnoughRoom && !m.now().Before(is.resumeAfter) {
		m.runner.TryLock([]string{s.Key(), request.PowerKey(s.InstanceID)}, func() { m.resumeGuest(ctx, s, is) })
	}
}

func stoppedByIO(dom *hv.Domain) bool {
	return dom.State == hv.StatePaused && dom.PauseReason == hv.PauseIOError
}

// noteRunning records that a guest runs. It keeps the record of a resumed guest until the guest
// may be resumed again.
func (m *Monitor) noteRunning(s *move.Spec, was *ioStop) {
	if was == nil {
		return
	}
	if m.now().Before(was.resumeAfter) {
		m.ioStops.set(s.MigrationID, &ioStop{resumes: was.resumes, resumeAfter: was.resumeAfter})
	} else {
		m.ioStops.set(s.MigrationID, nil)
	}
	if was.text != "" {
		m.watch.Notify(s.MigrationID)
	}
}

// resumeGuest resumes a guest after its overlay has space again. The caller holds the instance's
// keys, so no op has paused the guest or is about to.
func (m *Monitor) resumeGuest(ctx context.Context, s *move.Spec, is ioStop) {
	if err := m.move.StillOurs(ctx, s); err != nil {
		m.log.Warn("a guest stands still and is not resumed", "instance", s.InstanceName, "migration", s.MigrationID, "err", err)
		return
	}
	dom, err := m.hv.Domain(ctx, s.InstanceID)
	if err != nil || !stoppedByIO(dom) || dom.Occupied {
		return
	}
	is.resumeAfter = m.now().Add(min(resumeDelay<<min(is.resumes, 10), maxResumeDelay))
	is.resumes++
	m.ioStops.set(s.MigrationID, &is)
	if err := m.hv.Resume(ctx, s.InstanceID); err != nil {
		m.log.Warn("cannot resume a guest that stands still", "instance", s.InstanceName, "migration", s.MigrationID, "err", err)
		return
	}
	m.log.Info("there is room for the overlay again, and its guest is resumed", "instance", s.InstanceName, "migration", s.MigrationID, "time", is.resumes)
	m.auditGuest(s, "guest.resume", map[string]any{"overlay": s.Overlay, "time": is.resumes})
	m.noteRunning(s, &is)
}

func (m *Monitor) auditGuest(s *move.Spec, what string, details map[string]any) {
	if m.audit == nil {
		return
	}
	details["migration_id"] = s.MigrationID
	m.audit(api.EventPost{At: m.now(), What: what, Object: "instance/" + s.InstanceID, OpID: uuid.NewString(), Details: details})
}

func ioStopText(s *move.Spec, full bool, free int64) string {
	dir := filepath.Dir(s.Overlay)
	if !full {
		return fmt.Sprintf("instance %s is paused by an I/O error, and the overlay in %s was not seen without room (%d MiB free): look at its storage (`%s`), then `%s`",
			s.InstanceName, dir, free>>20, shell.Line("virsh", "domblkerror", "--", s.InstanceName), shell.Line("virsh", "resume", "--", s.InstanceName))
	}
	return fmt.Sprintf("instance %s is paused: there is no room for its overlay in %s (%d MiB free); make room, and it goes on by itself from %d MiB, or complete or cancel the migration",
		s.InstanceName, dir, free>>20, EnoughRoom>>20)
}

// PausedBy returns why an I/O error has paused a migration's guest, or "".
func (m *Monitor) PausedBy(migrationID string) string {
	if stop := m.ioStops.get(migrationID); stop != nil {
		return stop.text
	}
	return ""
}
