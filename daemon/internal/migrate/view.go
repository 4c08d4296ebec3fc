// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"time"

	"github.com/volferry/volferry/internal/api"
)

// render makes the API's document of a migration out of its history and of
// what is known in memory.
func (g *Manager) render(h *history) api.Migration {
	s := &h.spec
	state, failure := h.state()
	m := api.Migration{
		ID: s.MigrationID, VolumeID: s.VolumeID, VolumeName: s.VolumeName, InstanceID: s.InstanceID, Host: s.HostName,
		SrcAttachmentID: s.SrcAttachmentID, DstAttachmentID: s.DstAttachmentID,
		Src: s.Src, Dst: s.Dst, Method: s.Method, State: state, Phase: phaseOf(h, state),
		BytesTotal: s.sizeBytes(), BandwidthBytesPerSecond: g.machine.bandwidth(s),
		Verify: s.Verify, ExternalCopy: s.ExternalCopy, DeleteSource: s.DeleteSource, Error: failure,
	}
	started := h.ops[0].Op.CreatedAt.UTC()
	m.StartedAt = &started
	frozen, ended := h.times()
	if !ended.IsZero() {
		utc := ended.UTC()
		m.FinishedAt = &utc
	}
	if !frozen.IsZero() && s.Method == MethodOverlay {
		m.ExposedSeconds = g.exposure(frozen, ended).Seconds()
	}
	m.GuestPaused = g.guestPaused(h)
	if state.Final() {
		m.Remark = remark(&h.ops[len(h.ops)-1].Status)
	}
	fillStalls(h, &m)
	g.fillProgress(h, &m)
	return m
}

// exposure is how long the guest's newest writes were in the local overlay
// alone.
func (g *Manager) exposure(frozen, ended time.Time) time.Duration {
	if ended.IsZero() {
		ended = g.machine.now()
	}
	return max(0, ended.Sub(frozen))
}

// phaseOf is the word beside the state: what is being waited for, or the step.
func phaseOf(h *history, state api.MigrationState) string {
	o := h.running()
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

func fillStalls(h *history, m *api.Migration) {
	for i := range h.ops {
		var sw switchOutput
		if decodeOutput(&h.ops[i], "switch_to_overlay", &sw) {
			m.StallMS.Start = sw.StallMS
		}
		var re resumeOutput
		if decodeOutput(&h.ops[i], "resume", &re) {
			m.StallMS.Switch = re.StallMS
		}
	}
}

func (g *Manager) fillProgress(h *history, m *api.Migration) {
	s := &h.spec
	if h.copiedBefore(len(h.ops)) || m.State == api.MigrationCompleted {
		m.BytesDone = s.sizeBytes()
	}
	if p, ok := g.machine.board.get(s.MigrationID); ok && movesBytes(h.running()) {
		if p.Phase != "" && h.running().Waiting == "" {
			m.Phase = p.Phase
		}
		if p.BytesTotal > 0 {
			m.BytesTotal = p.BytesTotal
		}
		m.BytesDone, m.RateBytesPerSecond = p.BytesDone, p.RateBps
	}
	if s.Overlay != "" && !m.State.Final() {
		if n, err := g.machine.images.AllocatedBytes(s.Overlay); err == nil {
			m.OverlayBytes = n
		}
	}
}

// movesBytes says whether the op is at a step whose progress the board shows.
func movesBytes(o *opView) bool {
	return o != nil && slices.Contains([]string{"copy", "verify_copy", "mirror", "commit", "fold"}, o.Step)
}
