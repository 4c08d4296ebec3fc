// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// runNote is written in the pause, before the definition names dst.
type runNote struct {
	// Run is the process of the guest, and Top the image that takes its writes, as it
	// is while the guest is paused.
	Run int         `json:"run"`
	Top image.Stamp `json:"top"`
}

// top is the image that takes the guest's writes before the switch.
func (s *Spec) top() string {
	if s.Overlay != "" {
		return s.Overlay
	}
	return s.Src.Path
}

func (e *Env) noteRun(ctx context.Context, r *op.Run, s *Spec, disk *diskState) error {
	stamp, err := e.images.Stamp(ctx, s.top())
	if err != nil {
		return err
	}
	return r.Note(ctx, runNote{Run: disk.dom.Run, Top: stamp})
}

// notResumedByHand refuses to take dst for the end because the definition names it, if the
// guest was resumed by hand with the daemon dead, wrote, and the host went down: with a
// synchronous job every write is in both, but a flush of the guest is one of the
// overlay alone. What was flushed last may be in the overlay only.
func (e *Env) notResumedByHand(ctx context.Context, r *op.Run, s *Spec, to direction, disk *diskState) error {
	var note runNote
	noted, err := r.Noted("name_"+string(OnDst), &note)
	if err != nil || !noted || to.end != OnDst || disk.active && disk.dom.Run == note.Run {
		return err
	}
	now, err := e.images.Stamp(ctx, s.top())
	if err != nil || !now.RebootedSince(note.Top) || !now.WrittenSince(note.Top) {
		return err
	}
	return op.UnknownOutcome(api.Errorf(api.CodeChainChanged,
		"instance %s was resumed by somebody while its disk was switched to %s, wrote, and the host went down before the switch was over: the last writes that it flushed may be in %s alone. "+
			"Nothing was deleted. docs/how-to/recover.md (A guest that was resumed in the switch) says what can be done",
		s.InstanceName, s.Dst.Path, s.top()))
}
