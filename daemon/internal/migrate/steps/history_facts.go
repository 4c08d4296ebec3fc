// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// History answers what the other ops of a migration have done. Its errors are typed for the
// runner.
type History interface {
	// Completed says whether a complete of the migration is past its commit point.
	Completed(ctx context.Context, s *Spec) (bool, error)
	// Copied says whether dst is known to be a copy of src.
	Copied(ctx context.Context, s *Spec) (bool, error)
	// Facts are what else the steps ask about. The complete with this op id does not count.
	Facts(ctx context.Context, s *Spec, exceptOp string) (Facts, error)
	// Dst is the newest note of a dst that the migration makes, whichever of its ops made it.
	Dst(ctx context.Context, s *Spec) (DstNote, error)
}

// Facts are what the journal knows of a migration that its steps ask about.
type Facts struct {
	// Seal is the stamp of src when it had become frozen, nil of a start that an
	// older version made.
	Seal *image.Stamp
	// Folding: a cancel has begun to write the overlay back into src, so that src is not as
	// it was by our own doing.
	Folding bool
	// Completing: a complete has begun before, and part of the overlay may be in dst.
	Completing bool
	// Process is the process that start has put onto the overlay, empty if it is not known.
	Process string
}

// DstNote is what the journal has of a dst that the migration makes: before anything
// is there, and again when it is whole. Of a file the second note comes before the file
// is at its path.
type DstNote struct {
	Ours bool `json:"ours"`
	// Free: a dst that was there already is nobody's.
	Free bool `json:"free,omitempty"`
	// Temporary is the name that the file has in its directory until it is whole, where
	// the filesystem cannot have a file without a name.
	Temporary string `json:"temporary,omitempty"`
	// Print is the fingerprint of what was made, empty before it is whole.
	Print string `json:"print,omitempty"`
}

// foldingNote is what the notes of commit and fold have in common.
type foldingNote struct {
	Folding bool `json:"folding"`
}

// journalHistory is History by the journal, and by the runner for the ops that are at work.
type journalHistory struct {
	journal op.Journal
	status  func(ctx context.Context, opID string) (op.Status, error)
}

// NewHistory returns the History of a journal. Status is the runner's.
func NewHistory(journal op.Journal, status func(ctx context.Context, opID string) (op.Status, error)) History {
	return &journalHistory{journal, status}
}

// ops returns the ops of a migration, oldest first.
func (h *journalHistory) ops(ctx context.Context, s *Spec) ([]op.Status, error) {
	ops, err := h.journal.Group(ctx, s.MigrationID)
	if err != nil {
		return nil, op.Retry(request.BusyDelay, JournalError(err))
	}
	all := make([]op.Status, len(ops))
	for i, o := range ops {
		if all[i], err = h.status(ctx, o.ID); err != nil {
			return nil, op.Retry(request.BusyDelay, JournalError(err))
		}
	}
	return all, nil
}

// Completed implements History.
func (h *journalHistory) Completed(ctx context.Context, s *Spec) (bool, error) {
	ops, err := h.ops(ctx, s)
	return slices.ContainsFunc(ops, func(o op.Status) bool { return GoalOf(o.Op.Kind) == GoalComplete && o.Committed }), err
}

// Copied implements History: the built-in copier has made the copy, and read it back if
// that was asked for, or an earlier complete has compared it. Where other tools write to
// dst, what the copier saw there does not count; what a complete saw does, since its fold
// may have begun after it.
func (h *journalHistory) Copied(ctx context.Context, s *Spec) (bool, error) {
	ops, err := h.ops(ctx, s)
	return slices.ContainsFunc(ops, func(o op.Status) bool {
		var res CopyResult
		if GoalOf(o.Op.Kind) == GoalCopy && o.State == op.StateDone && decodeOutput(&o, copyStep, &res) {
			return s.Verify == VerifyNone || (res.Verified && !s.ExternalCopy)
		}
		var seen verifiedOutput
		return decodeOutput(&o, verifyStep, &seen) && seen.Compared
	}), err
}

// Facts implements History.
func (h *journalHistory) Facts(ctx context.Context, s *Spec, exceptOp string) (Facts, error) {
	var f Facts
	ops, err := h.ops(ctx, s)
	if err != nil {
		return f, err
	}
	for i := range ops {
		o := &ops[i]
		goal := GoalOf(o.Op.Kind)
		var out frozenOutput
		var began switchOutput
		if goal == GoalStart && decodeOutput(o, switchStep, &began) {
			f.Process = began.Process
		}
		switch {
		case goal == GoalStart && (decodeOutput(o, frozenStep, &out) || decodeOutput(o, holdStep, &out)):
			f.Seal = out.Src
		case goal == GoalComplete && o.Op.ID != exceptOp:
			f.Completing = true
		case goal == GoalCancel && !f.Folding:
			if f.Folding, err = h.beganToFold(ctx, o.Op.ID); err != nil {
				return f, op.Retry(request.BusyDelay, err)
			}
		}
	}
	return f, nil
}

func (h *journalHistory) beganToFold(ctx context.Context, opID string) (bool, error) {
	records, err := h.journal.Records(ctx, opID)
	if err != nil {
		return false, JournalError(err)
	}
	return slices.ContainsFunc(records, func(r op.Record) bool {
		var note foldingNote
		return r.Kind == op.EventNoted && (r.Step == commitStep || r.Step == foldStep) && json.Unmarshal(r.Data, &note) == nil && note.Folding
	}), nil
}

// Dst implements History.
func (h *journalHistory) Dst(ctx context.Context, s *Spec) (DstNote, error) {
	ops, err := h.journal.Group(ctx, s.MigrationID)
	if err != nil {
		return DstNote{}, op.Retry(request.BusyDelay, JournalError(err))
	}
	for _, o := range slices.Backward(ops) {
		records, err := h.journal.Records(ctx, o.ID)
		if err != nil {
			return DstNote{}, op.Retry(request.BusyDelay, JournalError(err))
		}
		for _, r := range slices.Backward(records) {
			var note DstNote
			if r.Kind == op.EventNoted && r.Step == createDestinationStep && json.Unmarshal(r.Data, &note) == nil {
				return note, nil
			}
		}
	}
	return DstNote{}, nil
}

// JournalError is the error of whatever needs a journal that cannot be read.
func JournalError(err error) *api.Error {
	return api.Errorf(api.CodeJournalUnavailable, "cannot read the journal: %v", err)
}
