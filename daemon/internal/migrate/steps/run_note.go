// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// runNote is written in the pause before the definition names dst, or, where the pivot comes first,
// before the pivot.
type runNote struct {
	// Run identifies the guest's process, and Top is the stamp of the image that receives its
	// writes, while the guest is paused.
	Run int         `json:"run"`
	Top image.Stamp `json:"top"`
	// DstNewer: dst was seen to have writes that the old image lacks. From then on a write to the
	// old image is a copy of dst, which may be incomplete.
	DstNewer bool `json:"dst_newer,omitempty"`
	// Asked: libvirt was asked for the pivot of a background job, and the result is not noted. End
	// is the stamp of the job's target at that time.
	Asked bool        `json:"asked,omitempty"`
	End   image.Stamp `json:"end,omitzero"`
	flushingNote
}

func (e *Env) noteRun(ctx context.Context, r *op.Run, s *Spec, to direction, disk *diskState) error {
	stamp, err := e.stampToKeep(ctx, s.top())
	if err != nil {
		return lostUnderJob(s, to, err)
	}
	return r.Note(ctx, runNote{Run: disk.dom.Run, Top: stamp})
}

// noteAsked is noteRun right before libvirt is asked for the pivot of a background job. The server
// of an end at an address is not asked with the guest paused: it would report only the size. before
// is the note of an earlier try.
func (e *Env) noteAsked(ctx context.Context, r *op.Run, s *Spec, to direction, disk *diskState, before runNote) error {
	note := runNote{Run: disk.dom.Run, Asked: true}
	var err error
	if note.Top, err = e.stampToKeep(ctx, s.top()); err != nil {
		return lostByGuest(s, err)
	}
	if end := to.image(s).Path; !api.IsNetwork(end) {
		err = e.flushInTime(ctx, end) // QEMU flushes it right after
		unanswered := errors.Is(err, errFlushTakesLong)
		if unanswered || notStored(err) {
			before.Flushing = true
			if noteErr := r.Note(ctx, before); noteErr != nil {
				return noteErr
			}
		}
		switch {
		case unanswered:
			return flushUnanswered(s, to, pausedTooLong)
		case notStored(err):
			return endNotStored(s, err)
		case err == nil:
			note.End, err = e.images.Stamp(ctx, end)
		}
		if err != nil {
			return op.Retry(request.BusyDelay, err)
		}
	}
	return r.Note(ctx, note)
}
