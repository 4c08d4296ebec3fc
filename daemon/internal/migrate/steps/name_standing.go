// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// NameStanding makes the definition of an instance name the image where the disk of its migration
// is, while an op of the migration waits for the operator: of a running guest that which its
// process has, if libvirt and the kernel agree, and of one that is off that which the op has left
// it on. At is where the journal has the disk, records are those of the op. Errors are typed for
// the runner.
func (e *Env) NameStanding(ctx context.Context, s *Spec, at Position, st *op.Status, records []op.Record) error {
	disk, err := e.confirmDisk(ctx, s)
	var disagreed *errWitnessesDisagree
	if errors.As(err, &disagreed) {
		return disagreed.why // a refusal: it is the other op that waits for the operator
	}
	if err != nil {
		return err
	}
	switch {
	case disk.dom.ConfigDisk(s.Target) == nil, disk.active && (disk.mirror != nil || disk.live == Foreign):
		return chainChanged(s, disk)
	case disk.active:
		at = disk.live
	default:
		if err := atRest(s, disk); err != nil {
			return err
		}
		if at, err = e.leftAt(ctx, s, disk, at, st, records); err != nil {
			return err
		}
	}
	if disk.config == at {
		return nil
	}
	e.log.Info("a definition names its image again", "instance", s.InstanceName, "disk", s.Target, "image", s.place(at))
	return e.hvError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.chainAt(at)))
}

// leftAt is where the disk of an instance that is off is while an op waits for the operator: where
// the journal has it, but for an op that waits in its switch.
func (e *Env) leftAt(ctx context.Context, s *Spec, disk *diskState, at Position, st *op.Status, records []op.Record) (Position, error) {
	switch goal := GoalOf(st.Op.Kind); {
	case st.Op.Kind == KindCancelCommitted:
		return OnSrc, nil // to which somebody has committed the overlay
	case goal == GoalStart && s.Method == MethodOverlay && (st.Step == nameOverlayStep || st.Step == switchStep):
		return OnOverlay, nil // it reads as src, or has what the guest wrote since it was started on it
	case goal == GoalCancel && st.Step == toSrc.nameStep():
		return OnOverlay, nil // the same, since the guest has not run on src yet
	case goal == GoalCancel && st.Step == pivotStep:
		return e.leftInPivot(ctx, s, toSrc, disk, records)
	case goal == GoalComplete && s.Method == MethodOffline && st.Step == toDst.nameStep():
		return e.leftOffline(ctx, s, st.Op.ID, records)
	case goal == GoalComplete && s.Background() && st.Step == pivotStep:
		return e.leftInPivot(ctx, s, toDst, disk, records)
	case goal == GoalComplete && s.Background() && st.Step == toDst.nameStep():
		return e.leftBehindJob(ctx, s, records)
	case goal == GoalComplete && (st.Step == toDst.nameStep() || st.Step == pivotStep):
		return e.leftInSwitch(ctx, s, records)
	}
	return at, nil
}

// leftOffline is leftAt for a complete of an instance that is kept off, which waits while its
// definition, that names dst, is taken back. Dst was a copy of src when it was named, and has more
// if the instance was started on it.
func (e *Env) leftOffline(ctx context.Context, s *Spec, opID string, records []op.Record) (Position, error) {
	note, err := notedRun(records, toDst.nameStep())
	if err != nil || note.DstNewer {
		return OnDst, err
	}
	return OnDst, e.sealed(ctx, s, opID)
}

// leftInSwitch is leftAt for a complete that waits in its switch. In the pause both chains were the
// same. If the image that was left was written since, see endHasAll. Else dst has all, and more by
// a guest that was started on it.
func (e *Env) leftInSwitch(ctx context.Context, s *Spec, records []op.Record) (Position, error) {
	note, err := notedRun(records, toDst.nameStep())
	if err != nil {
		return Foreign, err
	}
	now, err := e.images.Stamp(ctx, s.top())
	if err != nil {
		return Foreign, err
	}
	switch {
	case note.DstNewer:
		return OnDst, nil
	case !now.RebootedSince(note.Top):
		if now.WrittenSince(note.Top) {
			err = eitherHasMore(s, toDst)
		}
		return OnDst, err
	case now.WrittenSince(note.Top):
		return s.Before(), e.notRunOnDst(ctx, s)
	case now.Device:
		return Foreign, api.Errorf(api.CodeChainChanged,
			"the host was booted since instance %s stood still in its switch to %s, and the kernel does not know any more whether %s was written before: nobody can tell which of the two has the newest writes; compare them, and keep both until you know",
			s.InstanceName, s.Dst.Path, s.top())
	}
	return OnDst, nil
}

// leftInPivot is leftAt for an op that waits in the pivot of a job in the background. libvirt names
// the end when QEMU has gone over to it, where the guest may have run since.
func (e *Env) leftInPivot(ctx context.Context, s *Spec, to direction, disk *diskState, records []op.Record) (Position, error) {
	if disk.config == to.end {
		return to.end, nil
	}
	note, err := notedRun(records, pivotStep)
	if err != nil {
		return Foreign, err
	}
	untouched, err := e.untouchedSinceAsked(ctx, s, to, note)
	if err == nil && !untouched {
		err = eitherHasMore(s, to)
	}
	return OnOverlay, err
}

// leftBehindJob is leftAt for a complete that waits behind the pivot of such a job.
func (e *Env) leftBehindJob(ctx context.Context, s *Spec, records []op.Record) (Position, error) {
	note, err := notedRun(records, pivotStep)
	if err != nil {
		return Foreign, err
	}
	now, err := e.images.Stamp(ctx, s.top())
	if err == nil && now.WrittenSince(note.Top) {
		err = eitherHasMore(s, toDst)
	}
	return OnDst, err
}

// notRunOnDst refuses to name the image that was left once dst was written since the host was
// booted, or may have been: each may have what the other lacks.
func (e *Env) notRunOnDst(ctx context.Context, s *Spec) error {
	dst, err := e.images.Stamp(ctx, s.Dst.Path)
	if err != nil || dst.UntouchedInItsBoot() {
		return err
	}
	return api.Errorf(api.CodeChainChanged,
		"instance %s was resumed by somebody while its disk was switched to %s, and that was written after the host went down, by a start of the instance on it perhaps: it has what %s lacks, which may have the last writes from before; keep both, and compare them (docs/how-to/recover.md, A guest that was resumed in the switch)",
		s.InstanceName, s.Dst.Path, s.top())
}

// notedRun is the newest note of the switch in the records of an op, by the step that has written
// it.
func notedRun(records []op.Record, step string) (note runNote, err error) {
	for _, r := range records {
		if r.Step == step && r.Kind == op.EventNoted && err == nil {
			err = json.Unmarshal(r.Data, &note)
		}
	}
	return note, err
}

// chainAt is the chain of a disk at a position.
func (s *Spec) chainAt(at Position) []hv.Image {
	switch at {
	case OnOverlay:
		return s.OverlayChain()
	case OnDst:
		return s.DstChain()
	case OnSrc, Foreign:
	}
	return s.SrcChain()
}
