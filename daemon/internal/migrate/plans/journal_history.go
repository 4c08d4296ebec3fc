// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/led"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/overlay"
	"github.com/volferry/volferry/daemon/internal/migrate/pause"
	"github.com/volferry/volferry/daemon/internal/migrate/place"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

type journalHistory struct {
	journal op.Journal
	status  func(ctx context.Context, opID string) (op.Status, error)
}

// NewHistory returns a journal's History. status is Runner.Status.
func NewHistory(journal op.Journal, status func(ctx context.Context, opID string) (op.Status, error)) move.History {
	return &journalHistory{journal, status}
}

func (h *journalHistory) ops(ctx context.Context, s *move.Spec) ([]op.Status, error) {
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

func (h *journalHistory) Completed(ctx context.Context, s *move.Spec) (bool, error) {
	ops, err := h.ops(ctx, s)
	return slices.ContainsFunc(ops, func(o op.Status) bool { return move.GoalOf(o.Op.Kind) == move.GoalComplete && o.Committed }), err
}

// Copied reports whether dst is a copy of src: the built-in copier has made it, and read it back
// if requested, or an earlier complete op has compared it. If other tools also write to dst, the
// copier's verification does not count. A comparison counts and is not repeated, since its op may
// have begun to fold the overlay into dst.
func (h *journalHistory) Copied(ctx context.Context, s *move.Spec) (bool, error) {
	ops, err := h.ops(ctx, s)
	return slices.ContainsFunc(ops, func(o op.Status) bool {
		var res move.CopyResult
		if move.GoalOf(o.Op.Kind) == move.GoalCopy && o.State == op.StateDone && move.DecodeOutput(&o, transfer.CopyStep, &res) {
			return s.Verify == move.VerifyNone || (res.Verified && !s.ExternalCopy)
		}
		var seen transfer.VerifiedOutput
		return move.DecodeOutput(&o, transfer.VerifyStep, &seen) && seen.Compared
	}), err
}

func (h *journalHistory) Made(ctx context.Context, s *move.Spec) (bool, error) {
	ops, err := h.ops(ctx, s)
	return slices.ContainsFunc(ops, func(o op.Status) bool { return o.Op.Kind == move.KindMakeLive && o.State == op.StateDone }), err
}

func (h *journalHistory) Facts(ctx context.Context, s *move.Spec, exceptOp string) (move.Facts, error) {
	var f move.Facts
	ops, err := h.ops(ctx, s)
	if err != nil {
		return f, err
	}
	for i := range ops {
		o := &ops[i]
		goal := move.GoalOf(o.Op.Kind)
		var out seal.FrozenOutput
		var began overlay.SwitchOutput
		var seen transfer.VerifiedOutput
		f.Touched = f.Touched || move.DecodeOutput(o, transfer.VerifyStep, &seen) && seen.Touched
		if goal == move.GoalStart && s.SrcKind().Snapshots {
			if f.SnapshotBegun, err = h.beganSnapshot(ctx, o.Op.ID); err != nil {
				return f, op.Retry(request.BusyDelay, err)
			}
		}
		if goal == move.GoalStart && move.DecodeOutput(o, overlay.SwitchStep, &began) {
			f.Process = began.Process
		}
		switch {
		case goal == move.GoalStart && (move.DecodeOutput(o, overlay.FrozenStep, &out) || move.DecodeOutput(o, overlay.KeepOffStep, &out)):
			f.Seal, f.Snapshot = out.Src, out.Snapshot
		case goal == move.GoalComplete && o.Op.ID != exceptOp:
			f.Completing = true
		case goal == move.GoalCancel && !f.Folding:
			if f.Folding, err = h.beganToFold(ctx, o.Op.ID); err != nil {
				return f, op.Retry(request.BusyDelay, err)
			}
		}
	}
	if f.Seal == nil && s.Method != move.MethodOverlay && s.Method != move.MethodOffline {
		f.Seal, err = h.left(ctx, s)
	}
	return f, err
}

// left returns the stamp of a src that was not frozen (seal.LeftSrcNote), or nil. Of several
// stamps it returns the last.
func (h *journalHistory) left(ctx context.Context, s *move.Spec) (stamp *image.Stamp, err error) {
	for _, group := range []string{s.MigrationID, move.LiveGroup(s.MigrationID)} {
		ops, err := h.journal.Group(ctx, group)
		if err != nil {
			return nil, op.Retry(request.BusyDelay, request.JournalError(err))
		}
		for _, o := range ops {
			_, err := h.noted(ctx, o.ID, func(r *op.Record) bool {
				var note seal.LeftSrcNote
				is := slices.Contains([]string{blockjob.SettleStep, led.StillClosedStep, led.CopyLastStep}, r.Step) && json.Unmarshal(r.Data, &note) == nil && note.Left != nil
				if is {
					stamp = note.Left
				}
				return is
			})
			if err != nil {
				return nil, op.Retry(request.BusyDelay, err)
			}
		}
	}
	return stamp, nil
}

func (h *journalHistory) beganToFold(ctx context.Context, opID string) (bool, error) {
	return h.noted(ctx, opID, func(r *op.Record) bool {
		var note move.FoldingNote
		return (r.Step == pause.BeginStep || r.Step == blockjob.CommitStep || r.Step == pause.FoldStep) && json.Unmarshal(r.Data, &note) == nil && note.Folding
	})
}

func (h *journalHistory) beganSnapshot(ctx context.Context, opID string) (bool, error) {
	return h.noted(ctx, opID, func(r *op.Record) bool {
		var note move.SnapshotNote
		return (r.Step == overlay.FrozenStep || r.Step == overlay.KeepOffStep) && json.Unmarshal(r.Data, &note) == nil && note.Snapshot != ""
	})
}

func (h *journalHistory) noted(ctx context.Context, opID string, is func(r *op.Record) bool) (bool, error) {
	records, err := h.journal.Records(ctx, opID)
	if err != nil {
		return false, request.JournalError(err)
	}
	return slices.ContainsFunc(records, func(r op.Record) bool { return r.Kind == op.EventNoted && is(&r) }), nil
}

// WroteDst reports whether an op has written to dst, or was about to. A block job that libvirt has
// refused counts only if an earlier job of the op may have written.
func WroteDst(st *op.Status, records []op.Record) bool {
	if move.GoalOf(st.Op.Kind) == move.GoalCopy && st.State == op.StateDone {
		return true
	}
	begun := 0
	for i := range records {
		var note move.WritesNote
		switch r := &records[i]; {
		case r.Kind != op.EventNoted || json.Unmarshal(r.Data, &note) != nil:
		case note.Writes:
			begun++
		case note.Refused:
			begun--
		}
	}
	return begun > 0
}

func (h *journalHistory) Dst(ctx context.Context, s *move.Spec) (move.DstNote, error) {
	ops, err := h.journal.Group(ctx, s.MigrationID)
	if err != nil {
		return move.DstNote{}, op.Retry(request.BusyDelay, request.JournalError(err))
	}
	for _, o := range slices.Backward(ops) {
		records, err := h.journal.Records(ctx, o.ID)
		if err != nil {
			return move.DstNote{}, op.Retry(request.BusyDelay, request.JournalError(err))
		}
		for _, r := range slices.Backward(records) {
			var note move.DstNote
			if r.Kind == op.EventNoted && r.Step == move.CreateDestinationStep && json.Unmarshal(r.Data, &note) == nil {
				return note, nil
			}
		}
	}
	return move.DstNote{}, nil
}

func (h *journalHistory) BegunHeld(ctx context.Context, s *move.Spec, job hv.JobKind, process string) (bool, error) {
	ops, err := h.ops(ctx, s)
	return process != "" && slices.ContainsFunc(ops, func(o op.Status) bool {
		var begun pause.BegunOutput
		return move.DecodeOutput(&o, pause.BeginStep, &begun) && begun == pause.BegunOutput{Job: job, Process: process}
	}), err
}

func (h *journalHistory) EndNotStored(ctx context.Context, s *move.Spec) (lost bool, err error) {
	ops, err := h.ops(ctx, s)
	if err != nil {
		return false, err
	}
	for i := range ops {
		var begun pause.BegunOutput
		if move.DecodeOutput(&ops[i], pause.BeginStep, &begun) && begun.Job == move.ToDst.Job {
			lost = false
		}
		if lost || move.GoalOf(ops[i].Op.Kind) != move.GoalComplete {
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

// leftFlushing reports whether, for any step, the last flush of dst has failed or has no result.
func leftFlushing(records []op.Record) bool {
	flushing := map[string]bool{}
	for i := range records {
		r := &records[i]
		switch {
		case r.Kind == op.EventSucceeded:
			delete(flushing, r.Step)
		case r.Kind == op.EventNoted && (r.Step == move.ToSwitch.Begin || r.Step == pause.DrainStep || r.Step == overlay.PivotStep):
			var note move.FlushingNote
			if json.Unmarshal(r.Data, &note) == nil && note.Flushing {
				flushing[r.Step] = true
			} else {
				delete(flushing, r.Step)
			}
		}
	}
	return len(flushing) > 0
}

// Granted reports whether the registry has granted a start's lock.
func Granted(st *op.Status) bool {
	_, ok := st.Outputs[place.RegisterStep]
	return ok
}

// CancelAdmitted reports whether a cancel was admitted, and so may have changed something.
func CancelAdmitted(st *op.Status) bool {
	var out admittedOutput
	return move.DecodeOutput(st, admitStep, &out) || move.DecodeOutput(st, overlay.AdmitCommittedStep, &out)
}

// FrozenAt returns when a start saw src frozen.
func FrozenAt(st *op.Status) (at time.Time, ok bool) {
	var out seal.FrozenOutput
	ok = move.DecodeOutput(st, overlay.FrozenStep, &out)
	return out.At, ok
}

// NotFrozen returns why a start failed after its guest was on the overlay (QEMU kept src open for
// writing, or src could not store writes), otherwise nil.
func NotFrozen(st *op.Status, s *move.Spec) *api.Error {
	var out seal.FrozenOutput
	move.DecodeOutput(st, overlay.FrozenStep, &out)
	switch {
	case out.NotStored != "":
		return api.Errorf(api.CodeIOError, "cannot migrate volume %s: %s", s.VolumeName, out.NotStored)
	case out.NotFrozen != "":
		return api.Errorf(api.CodeUnsupportedDisk, "cannot migrate volume %s while its guest runs: %s", s.VolumeName, out.NotFrozen)
	}
	return nil
}

// StartStall returns for how many milliseconds the switch to the overlay blocked the guest's
// writes, nil if unknown. ok is false if the op has not made the switch.
func StartStall(st *op.Status) (ms *float64, ok bool) {
	var out overlay.SwitchOutput
	ok = move.DecodeOutput(st, overlay.SwitchStep, &out)
	return out.StallMS, ok
}

// SwitchedProcess returns the guest's process that an op has switched to the overlay, or "".
func SwitchedProcess(st *op.Status) string {
	var out overlay.SwitchOutput
	move.DecodeOutput(st, overlay.SwitchStep, &out)
	return out.Process
}

// HoldStall is StartStall for the pause at the beginning of a block job.
func HoldStall(st *op.Status) (ms *float64, ok bool) {
	var out pause.ResumeOutput
	ok = move.DecodeOutput(st, pause.ToBegin.End, &out)
	return out.StallMS, ok && out.StallMS != nil
}

// SwitchStall is StartStall for the switch that ends the migration.
func SwitchStall(st *op.Status) (ms *float64, ok bool) {
	var out pause.ResumeOutput
	ok = move.DecodeOutput(st, move.ToSwitch.End, &out)
	return out.StallMS, ok
}
