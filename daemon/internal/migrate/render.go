// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/history"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/place"
	"github.com/volferry/volferry/daemon/internal/migrate/plans"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

func (m *Manager) render(h *history.Migration) api.Migration {
	mig, _ := m.renderPaced(h)
	return mig
}

// renderPaced returns the API's document of a migration, and the kind of its Pacing.
func (m *Manager) renderPaced(h *history.Migration) (api.Migration, move.PacingKind) {
	s := &h.Spec
	state, failure := h.ShownState()
	mig := api.Migration{
		ID: s.MigrationID, VolumeID: s.VolumeID, VolumeName: s.VolumeName, InstanceID: s.InstanceID, Host: s.HostName,
		SrcAttachmentID: s.SrcAttachmentID, DstAttachmentID: s.DstAttachmentID,
		Src: s.Src, Dst: s.Dst, Method: s.Method, State: state, Phase: phaseOf(h, state),
		BytesTotal: s.SizeBytes(), ExternalCopy: s.ExternalCopy, DeleteSource: s.DeleteSource, Composite: s.Composite, Error: failure,
	}
	mig.SetCopyOptions(m.env.Move.CopyOptions(s))
	mig.Pace = cmp.Or(mig.Pace, api.PaceGentle)
	started := h.Ops[0].Op.CreatedAt.UTC()
	mig.StartedAt = &started
	frozen, ended := h.Times()
	if !ended.IsZero() {
		utc := ended.UTC()
		mig.FinishedAt = &utc
	}
	if !frozen.IsZero() && s.Method == move.MethodOverlay {
		mig.ExposedSeconds = m.exposure(frozen, ended).Seconds()
		mig.OverlayShared = m.overlayShared(s)
	}
	if at := m.stopped(h); at != nil && !at.At.IsZero() {
		utc := at.At.UTC()
		mig.StoppedAt, mig.Error = &utc, at.Failure
	}
	if h.OnOverlay() {
		mig.GuestPaused = m.Monitor.PausedBy(s.MigrationID)
	}
	if !state.Final() {
		mig.GuestNotResumed = m.env.Pause.Unresumed(s.MigrationID)
	}
	mig.ChainProblem = m.Monitor.ProblemOf(s.MigrationID)
	if h.OnOverlay() {
		mig.GuestThrottled = m.Monitor.Throttled(s.MigrationID)
	}
	mig.Remark = remark(h, state)
	if state == api.MigrationCancelled && h.Abandoned() == nil {
		mig.DstAfter = place.DstAfter(&h.Ops[len(h.Ops)-1].Status, s)
	}
	fillStalls(h, &mig)
	pacing := m.fillProgress(h, &mig)
	return mig, pacing
}

func remark(h *history.Migration, state api.MigrationState) string {
	var remarks []string
	if state.Final() {
		remarks = append(remarks, request.Remark(&h.Ops[len(h.Ops)-1].Status))
	}
	if !state.Final() || state == api.MigrationCompleted {
		remarks = append(append(remarks, h.Spec.RoomNote), h.Spec.Notes...)
	}
	return strings.Join(slices.DeleteFunc(remarks, func(r string) bool { return r == "" }), "; ")
}

// overlayShared reports whether the overlay survives the loss of this host. An overlay in another
// directory, from before a change of the settings, is not shared.
func (m *Manager) overlayShared(s *move.Spec) bool {
	return m.cfg.OverlaysShared && filepath.Dir(s.Overlay) == m.cfg.OverlayDir
}

// exposure returns how long only the overlay had the guest's newest writes.
func (m *Manager) exposure(frozen, ended time.Time) time.Duration {
	if ended.IsZero() {
		ended = m.ports.Now()
	}
	return max(0, ended.Sub(frozen))
}

func phaseOf(h *history.Migration, state api.MigrationState) string {
	o := h.Running()
	switch {
	case o == nil:
		return string(state)
	case o.Waiting != "":
		return "waiting for " + o.Waiting
	case o.Step != "":
		return o.Step
	}
	return string(state)
}

func fillStalls(h *history.Migration, mig *api.Migration) {
	for i := range h.Ops {
		if ms, ok := plans.StartStall(&h.Ops[i].Status); ok {
			mig.StallMS.Start = ms
		}
		if ms, ok := plans.HoldStall(&h.Ops[i].Status); ok {
			mig.StallMS.Job = ms
		}
		if ms, ok := plans.SwitchStall(&h.Ops[i].Status); ok {
			mig.StallMS.Switch = ms
		}
	}
}

func (m *Manager) fillProgress(h *history.Migration, mig *api.Migration) (pacing move.PacingKind) {
	s := &h.Spec
	mig.BytesDone = h.CopiedBytes()
	if mig.State == api.MigrationCompleted {
		mig.BytesDone = s.SizeBytes()
	}
	if p, ok := m.env.Move.Progress(s); ok && movesBytes(h.Running()) {
		if p.Phase != "" && h.Running().Waiting == "" {
			mig.Phase = p.Phase
		}
		if p.BytesTotal > 0 {
			mig.BytesTotal = p.BytesTotal
		}
		mig.Pacing, pacing = p.Pacing.Words, p.Pacing.PacingKind
		mig.BytesDone, mig.RateBytesPerSecond = p.BytesDone, p.RateBytesPerSecond
	}
	if s.Overlay != "" && !mig.State.Final() {
		if n, err := m.ports.Images.AllocatedBytes(s.Overlay); err == nil {
			mig.OverlayBytes = n
		}
	}
	return pacing
}

func movesBytes(o *history.Op) bool {
	return o != nil && slices.Contains([]string{"copy", "verify_copy", blockjob.MirrorStep, blockjob.CopyBehindStep, "commit", "fold"}, o.Step)
}
