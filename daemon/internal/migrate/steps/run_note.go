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

// runNote is written in the pause, before the definition names dst; where the pivot comes first,
// before that.
type runNote struct {
	// Run tells the process of the guest, and Top is the stamp of the image that takes its
	// writes, while the guest is paused.
	Run int         `json:"run"`
	Top image.Stamp `json:"top"`
	// DstNewer says that dst was seen to have what the image that was left lacks. Whatever is
	// written to that image from then on is a copy of dst, of which nobody knows whether it came to
	// its end.
	DstNewer bool `json:"dst_newer,omitempty"`
	// Asked: libvirt was asked for the pivot of a job that writes in the background, and has not
	// said what came of it. End is the stamp of the image that the job writes to, as it was asked.
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

// noteAsked is noteRun right before libvirt is asked for the pivot of a job that writes in the
// background. The server of an end at an address is not asked with the guest paused: it would say
// the size alone. Before is the note of an earlier try.
func (e *Env) noteAsked(ctx context.Context, r *op.Run, s *Spec, to direction, disk *diskState, before runNote) error {
	note := runNote{Run: disk.dom.Run, Asked: true}
	var err error
	if note.Top, err = e.stampToKeep(ctx, s.top()); err != nil {
		return lostByGuest(s, err)
	}
	if end := to.image(s).Path; !api.IsNetwork(end) {
		err = e.flushInTime(ctx, end) // which QEMU flushes right behind it
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
