// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// NameStanding makes the definition of an instance name the present image of its disk, while an op
// of the migration waits for the operator. For a running guest this is the image of its process,
// if libvirt and the kernel agree. For a guest that is off it is the image where the op has left
// the guest. at is the position by the journal. Errors are typed for the runner.
func (e *Env) NameStanding(ctx context.Context, s *move.Spec, at move.Position, st *op.Status, records []op.Record) error {
	disk, err := e.look.ConfirmDisk(ctx, s)
	var disagreed *look.WitnessesDisagreeError
	if errors.As(err, &disagreed) {
		return disagreed.Why // this call is refused; the op still waits for the operator
	}
	if err != nil {
		return err
	}
	switch {
	case disk.Dom.ConfigDisk(s.Target) == nil, disk.Active && (disk.Mirror != nil || disk.Live == move.Foreign):
		return look.ChainChanged(s, disk)
	case disk.Active:
		at = disk.Live
	default:
		if err := look.AtRest(s, disk); err != nil {
			return err
		}
		if at, err = e.leftAt(ctx, s, disk, at, st, records); err != nil {
			return err
		}
	}
	if disk.Config == at {
		return nil
	}
	e.log.Info("a definition names its image again", "instance", s.InstanceName, "disk", s.Target, "image", s.Place(at))
	return e.move.HVError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, chainAt(s, at)))
}

// leftAt returns the position of an instance that is off while an op waits for the operator. It is
// the journal's position unless the op waits in its switch.
func (e *Env) leftAt(ctx context.Context, s *move.Spec, disk *move.DiskState, at move.Position, st *op.Status, records []op.Record) (move.Position, error) {
	switch goal := move.GoalOf(st.Op.Kind); {
	case st.Op.Has(AdmitCommittedStep):
		return move.OnSrc, nil // another program has committed the overlay
	case goal == move.GoalStart && s.Method == move.MethodOverlay && (st.Step == nameOverlayStep || st.Step == SwitchStep):
		return move.OnOverlay, nil // the overlay reads as src, or has the writes of a guest that was started on it
	case goal == move.GoalCancel && st.Step == NameSrcStep:
		return move.OnOverlay, nil // the same, since the guest has not run on src yet
	case goal == move.GoalCancel && st.Step == PivotStep:
		return e.leftInPivot(ctx, s, move.ToSrc, disk, records)
	case st.Step == NameDstWhileOffStep:
		return e.leftOffline(ctx, s, st.Op.ID, records)
	case goal == move.GoalComplete && s.Background() && st.Step == PivotStep:
		return e.leftInPivot(ctx, s, move.ToDst, disk, records)
	case st.Step == NameDstAfterPivotStep:
		return e.leftBehindJob(ctx, s, records)
	case goal == move.GoalComplete && (st.Step == NameDstStep || st.Step == PivotStep):
		return e.leftInSwitch(ctx, s, records)
	}
	return at, nil
}

// leftOffline is leftAt for a complete op of an offline migration that waits while it changes the
// definition back from dst. dst was a copy of src then, and has more data if the instance was
// started on it.
func (e *Env) leftOffline(ctx context.Context, s *move.Spec, opID string, records []op.Record) (move.Position, error) {
	note, err := notedRun(records, NameDstWhileOffStep)
	if err != nil || note.DstNewer {
		return move.OnDst, err
	}
	return move.OnDst, e.seal.Sealed(ctx, s, opID)
}

// leftInSwitch is leftAt for a complete op that waits in its switch. While the guest was paused
// both chains were equal. Unless the image from before the switch was written since, dst has
// everything.
func (e *Env) leftInSwitch(ctx context.Context, s *move.Spec, records []op.Record) (move.Position, error) {
	note, err := notedRun(records, NameDstStep)
	if err != nil {
		return move.Foreign, err
	}
	now, err := e.images.Stamp(ctx, s.Top())
	if err != nil {
		return move.Foreign, err
	}
	switch {
	case note.DstNewer:
		return move.OnDst, nil
	case !now.RebootedSince(note.Top):
		if now.WrittenSince(note.Top) {
			err = look.EitherHasMore(s, move.ToDst)
		}
		return move.OnDst, err
	case now.WrittenSince(note.Top):
		return s.Before(), e.notRunOnDst(ctx, s)
	case now.Device:
		return move.Foreign, api.Errorf(api.CodeChainChanged,
			"the host was booted since instance %s stood still in its switch to %s, and the kernel does not know any more whether %s was written before: nobody can tell which of the two has the newest writes; compare them, and keep both until you know",
			s.InstanceName, s.Dst.Path, s.Top())
	}
	return move.OnDst, nil
}

// leftInPivot is leftAt for an op that waits in the pivot of a background job. libvirt changes the
// definition only after QEMU has moved to the new image, and the guest may have written there
// meanwhile.
func (e *Env) leftInPivot(ctx context.Context, s *move.Spec, to move.Direction, disk *move.DiskState, records []op.Record) (move.Position, error) {
	if disk.Config == to.End {
		return to.End, nil
	}
	note, err := notedRun(records, PivotStep)
	if err != nil {
		return move.Foreign, err
	}
	untouched, err := e.untouchedSinceAsked(ctx, s, to, note)
	if err == nil && !untouched {
		err = look.EitherHasMore(s, to)
	}
	return move.OnOverlay, err
}

// leftBehindJob is leftAt for a complete op that waits after the pivot of a background job.
func (e *Env) leftBehindJob(ctx context.Context, s *move.Spec, records []op.Record) (move.Position, error) {
	note, err := notedRun(records, PivotStep)
	if err != nil {
		return move.Foreign, err
	}
	now, err := e.images.Stamp(ctx, s.Top())
	if err == nil && now.WrittenSince(note.Top) {
		err = look.EitherHasMore(s, move.ToDst)
	}
	return move.OnDst, err
}

// notRunOnDst refuses to name the image from before the switch if dst may have been written since
// the host's boot: then each image may have writes that the other lacks.
func (e *Env) notRunOnDst(ctx context.Context, s *move.Spec) error {
	dst, err := e.images.Stamp(ctx, s.Dst.Path)
	if err != nil || dst.UntouchedInItsBoot() {
		return err
	}
	return api.Errorf(api.CodeChainChanged,
		"instance %s was resumed by somebody while its disk was switched to %s, and that was written after the host went down, by a start of the instance on it perhaps: it has what %s lacks, which may have the last writes from before; keep both, and compare them (docs/how-to/recover.md, A guest that was resumed in the switch)",
		s.InstanceName, s.Dst.Path, s.Top())
}

func notedRun(records []op.Record, step string) (note blockjob.RunNote, err error) {
	for _, r := range records {
		if r.Step == step && r.Kind == op.EventNoted && err == nil {
			err = json.Unmarshal(r.Data, &note)
		}
	}
	return note, err
}

func chainAt(s *move.Spec, at move.Position) []hv.Image {
	switch at {
	case move.OnOverlay:
		return s.OverlayChain()
	case move.OnDst:
		return s.DstChain()
	case move.OnSrc, move.Foreign:
	}
	return s.SrcChain()
}
