// SPDX-License-Identifier: Apache-2.0

package blockjob

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
)

// RunNote is a note about the paused guest. It is written before the definition names dst or,
// where the pivot comes first, before the pivot.
type RunNote struct {
	// Run identifies the guest's process. Top is the stamp, while the guest is paused, of the
	// image that receives its writes.
	Run int         `json:"run"`
	Top image.Stamp `json:"top"`
	// DstNewer means that dst had writes that the old image lacks. If the old image is written
	// after that, it may be an incomplete copy of dst.
	DstNewer bool `json:"dst_newer,omitempty"`
	// Asked: libvirt was asked for the pivot of a background job, with unknown result. End is the
	// stamp of the job's target before that.
	Asked bool        `json:"asked,omitempty"`
	End   image.Stamp `json:"end,omitzero"`
	move.FlushingNote
}

// NoteRun writes a RunNote about the paused guest.
func (e *Env) NoteRun(ctx context.Context, r *op.Run, s *move.Spec, to move.Direction, disk *move.DiskState) error {
	stamp, err := e.seal.StampToKeep(ctx, s.Top())
	if err != nil {
		return lostUnderJob(s, to, err)
	}
	return r.Note(ctx, RunNote{Run: disk.Dom.Run, Top: stamp})
}

// NoteAsked writes a RunNote right before libvirt is asked for the pivot of a background job. An
// NBD export or RBD image gets no stamp: its server would report only the size, and is not asked
// with the guest paused. earlier is the note of an earlier try.
func (e *Env) NoteAsked(ctx context.Context, r *op.Run, s *move.Spec, to move.Direction, disk *move.DiskState, earlier RunNote) error {
	note := RunNote{Run: disk.Dom.Run, Asked: true}
	var err error
	if note.Top, err = e.seal.StampToKeep(ctx, s.Top()); err != nil {
		return move.LostByGuest(s, err)
	}
	if to.Kind(s).Witnessed {
		end := to.Image(s).Path
		err = e.flushInTime(ctx, end) // QEMU flushes it right after
		unanswered := errors.Is(err, errFlushTakesLong)
		if unanswered || move.NotStored(err) {
			earlier.Flushing = true
			if noteErr := r.Note(ctx, earlier); noteErr != nil {
				return noteErr
			}
		}
		switch {
		case unanswered:
			return FlushUnanswered(s, to, pausedTooLong)
		case move.NotStored(err):
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
