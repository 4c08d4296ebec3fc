// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

const createDestinationStep = "create_destination"

// journalHistory reads a History from the journal, and from the runner for running ops.
type journalHistory struct {
	journal op.Journal
	status  func(ctx context.Context, opID string) (op.Status, error)
}

// NewHistory returns the History of a journal. status is Runner.Status.
func NewHistory(journal op.Journal, status func(ctx context.Context, opID string) (op.Status, error)) History {
	return &journalHistory{journal, status}
}

func (h *journalHistory) ops(ctx context.Context, s *Spec) ([]op.Status, error) {
	ops, err := h.journal.Group(ctx, s.MigrationID)
	if err != nil {
		return nil, op.Retry(request.BusyDelay, request.JournalError(err))
	}
	all := make([]op.Status, len(ops))
	for i, o := range ops {
		if all[i], err = h.status(ctx, o.ID); err != nil {
			return nil, op.Retry(request.BusyDelay, request.JournalError(err))
		}
	}
	return all, nil
}

// Completed implements History.
func (h *journalHistory) Completed(ctx context.Context, s *Spec) (bool, error) {
	ops, err := h.ops(ctx, s)
	return slices.ContainsFunc(ops, func(o op.Status) bool { return GoalOf(o.Op.Kind) == GoalComplete && o.Committed }), err
}

// Copied implements History: the built-in copier has made the copy, and read it back if requested,
// or an earlier complete has compared it. If other tools write to dst, the built-in copier's
// verification does not count. A complete's comparison counts, since its fold may have begun after
// it.
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

// Made implements History.
func (h *journalHistory) Made(ctx context.Context, s *Spec) (bool, error) {
	ops, err := h.ops(ctx, s)
	return slices.ContainsFunc(ops, func(o op.Status) bool { return o.Op.Kind == KindMakeLive && o.State == op.StateDone }), err
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
		var seen verifiedOutput
		f.Touched = f.Touched || decodeOutput(o, verifyStep, &seen) && seen.Touched
		if goal == GoalStart && api.IsRBD(s.Src.Path) {
			if f.SnapshotBegun, err = h.beganSnapshot(ctx, o.Op.ID); err != nil {
				return f, op.Retry(request.BusyDelay, err)
			}
		}
		if goal == GoalStart && decodeOutput(o, switchStep, &began) {
			f.Process = began.Process
		}
		switch {
		case goal == GoalStart && (decodeOutput(o, frozenStep, &out) || decodeOutput(o, keepOffStep, &out)):
			f.Seal, f.Snapshot = out.Src, out.Snapshot
		case goal == GoalComplete && o.Op.ID != exceptOp:
			f.Completing = true
		case goal == GoalCancel && !f.Folding:
			if f.Folding, err = h.beganToFold(ctx, o.Op.ID); err != nil {
				return f, op.Retry(request.BusyDelay, err)
			}
		}
	}
	if f.Seal == nil && s.Method != MethodOverlay && s.Method != MethodOffline {
		f.Seal, err = h.left(ctx, s)
	}
	return f, err
}

// left returns the stamp of a src that was not frozen, from after its last user; nil if there is
// none. Of several tries, or generations, the last one counts.
func (h *journalHistory) left(ctx context.Context, s *Spec) (seal *image.Stamp, err error) {
	for _, group := range []string{s.MigrationID, LiveGroup(s.MigrationID)} {
		ops, err := h.journal.Group(ctx, group)
		if err != nil {
			return nil, op.Retry(request.BusyDelay, request.JournalError(err))
		}
		for _, o := range ops {
			_, err := h.noted(ctx, o.ID, func(r *op.Record) bool {
				var note leftSrcNote
				is := slices.Contains([]string{settleStep, stillClosedStep, copyLastStep}, r.Step) && json.Unmarshal(r.Data, &note) == nil && note.Left != nil
				if is {
					seal = note.Left
				}
				return is
			})
			if err != nil {
				return nil, op.Retry(request.BusyDelay, err)
			}
		}
	}
	return seal, nil
}

func (h *journalHistory) beganToFold(ctx context.Context, opID string) (bool, error) {
	return h.noted(ctx, opID, func(r *op.Record) bool {
		var note foldingNote
		return (r.Step == beginStep || r.Step == commitStep || r.Step == foldStep) && json.Unmarshal(r.Data, &note) == nil && note.Folding
	})
}

func (h *journalHistory) beganSnapshot(ctx context.Context, opID string) (bool, error) {
	return h.noted(ctx, opID, func(r *op.Record) bool {
		var note snapshotNote
		return (r.Step == frozenStep || r.Step == keepOffStep) && json.Unmarshal(r.Data, &note) == nil && note.Snapshot != ""
	})
}

func (h *journalHistory) noted(ctx context.Context, opID string, is func(r *op.Record) bool) (bool, error) {
	records, err := h.journal.Records(ctx, opID)
	if err != nil {
		return false, request.JournalError(err)
	}
	return slices.ContainsFunc(records, func(r op.Record) bool { return r.Kind == op.EventNoted && is(&r) }), nil
}

// WroteDst reports whether an op with these records has written to dst, or was about to.
func WroteDst(st *op.Status, records []op.Record) bool {
	if GoalOf(st.Op.Kind) == GoalCopy && st.State == op.StateDone {
		return true
	}
	return slices.ContainsFunc(records, func(r op.Record) bool {
		var note writesNote
		return r.Kind == op.EventNoted && json.Unmarshal(r.Data, &note) == nil && note.Writes
	})
}

// Dst implements History.
func (h *journalHistory) Dst(ctx context.Context, s *Spec) (DstNote, error) {
	ops, err := h.journal.Group(ctx, s.MigrationID)
	if err != nil {
		return DstNote{}, op.Retry(request.BusyDelay, request.JournalError(err))
	}
	for _, o := range slices.Backward(ops) {
		records, err := h.journal.Records(ctx, o.ID)
		if err != nil {
			return DstNote{}, op.Retry(request.BusyDelay, request.JournalError(err))
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

// BegunHeld implements History.
func (h *journalHistory) BegunHeld(ctx context.Context, s *Spec, job hv.JobKind, process string) (bool, error) {
	ops, err := h.ops(ctx, s)
	return process != "" && slices.ContainsFunc(ops, func(o op.Status) bool {
		var begun begunOutput
		return decodeOutput(&o, beginStep, &begun) && begun == begunOutput{job, process}
	}), err
}

// EndNotStored implements History.
func (h *journalHistory) EndNotStored(ctx context.Context, s *Spec) (lost bool, err error) {
	ops, err := h.ops(ctx, s)
	if err != nil {
		return false, err
	}
	for i := range ops {
		var begun begunOutput
		if decodeOutput(&ops[i], beginStep, &begun) && begun.Job == toDst.job {
			lost = false
		}
		if lost || GoalOf(ops[i].Op.Kind) != GoalComplete {
			continue
		}
		records, err := h.journal.Records(ctx, ops[i].Op.ID)
		if err != nil {
			return false, op.Retry(request.BusyDelay, request.JournalError(err))
		}
		lost = leftFlushing(records)
	}
	return lost, nil
}

// leftFlushing reports whether the last flush of the end in one of an op's steps has failed, or has
// no result.
func leftFlushing(records []op.Record) bool {
	flushing := map[string]bool{}
	for i := range records {
		r := &records[i]
		switch {
		case r.Kind == op.EventSucceeded:
			delete(flushing, r.Step)
		case r.Kind == op.EventNoted && (r.Step == toSwitch.begin || r.Step == drainStep || r.Step == pivotStep):
			var note flushingNote
			if json.Unmarshal(r.Data, &note) == nil && note.Flushing {
				flushing[r.Step] = true
			} else {
				delete(flushing, r.Step)
			}
		}
	}
	return len(flushing) > 0
}

// decodeOutput reads the output of a step of an op; false if there is none.
func decodeOutput(st *op.Status, step string, v any) bool {
	data, ok := st.Outputs[step]
	return ok && json.Unmarshal(data, v) == nil
}

// Granted reports whether the registry has granted the lock to a start.
func Granted(st *op.Status) bool {
	_, ok := st.Outputs[registerStep]
	return ok
}

// CancelAdmitted reports whether a cancel was admitted: from then on it may have changed something.
func CancelAdmitted(st *op.Status) bool {
	var out admittedOutput
	return decodeOutput(st, admitStep, &out)
}

// FrozenAt returns when a start saw src frozen; ok is false if it did not get so far.
func FrozenAt(st *op.Status) (at time.Time, ok bool) {
	var out frozenOutput
	ok = decodeOutput(st, frozenStep, &out)
	return out.At, ok
}

// NotFrozen returns why a start failed after its guest was on the overlay: QEMU kept src open for
// writing, or src could not store writes. It returns nil for any other start.
func NotFrozen(st *op.Status, s *Spec) *api.Error {
	var out frozenOutput
	decodeOutput(st, frozenStep, &out)
	switch {
	case out.NotStored != "":
		return api.Errorf(api.CodeIOError, "cannot migrate volume %s: %s", s.VolumeName, out.NotStored)
	case out.NotFrozen != "":
		return api.Errorf(api.CodeUnsupportedDisk, "cannot migrate volume %s while its guest runs: %s", s.VolumeName, out.NotFrozen)
	}
	return nil
}

// StartStall returns for how many milliseconds the switch to the overlay blocked the guest's
// writes, nil if unknown. ok is false for an op without that step.
func StartStall(st *op.Status) (ms *float64, ok bool) {
	var out switchOutput
	ok = decodeOutput(st, switchStep, &out)
	return out.StallMS, ok
}

// SwitchedProcess returns the guest's process that an op has switched to the overlay, "" if
// unknown.
func SwitchedProcess(st *op.Status) string {
	var out switchOutput
	decodeOutput(st, switchStep, &out)
	return out.Process
}

// HoldStall is StartStall for the beginning of a block job with the guest suspended.
func HoldStall(st *op.Status) (ms *float64, ok bool) {
	var out resumeOutput
	ok = decodeOutput(st, toBegin.end, &out)
	return out.StallMS, ok && out.StallMS != nil
}

// SwitchStall is StartStall for the switch that ends the migration.
func SwitchStall(st *op.Status) (ms *float64, ok bool) {
	var out resumeOutput
	ok = decodeOutput(st, toSwitch.end, &out)
	return out.StallMS, ok
}
