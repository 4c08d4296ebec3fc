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

// NameStanding changes the definition of an instance to the present image of its migration's disk,
// while an op of the migration waits for the operator: for a running guest the image of its
// process, if libvirt and the kernel agree; for a guest that is off, the image where the op has
// left it. at is the position in the journal, records are the op's. Errors are typed for the
// runner.
func (e *Env) NameStanding(ctx context.Context, s *Spec, at Position, st *op.Status, records []op.Record) error {
	disk, err := e.confirmDisk(ctx, s)
	var disagreed *errWitnessesDisagree
	if errors.As(err, &disagreed) {
		return disagreed.why // a refusal of this call; the other op waits for the operator
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

// leftAt returns the position of an instance that is off while an op waits for the operator: the
// journal's position, unless the op waits in its switch.
func (e *Env) leftAt(ctx context.Context, s *Spec, disk *diskState, at Position, st *op.Status, records []op.Record) (Position, error) {
	switch goal := GoalOf(st.Op.Kind); {
	case st.Op.Kind == KindCancelCommitted:
		return OnSrc, nil // another program has committed the overlay to src
	case goal == GoalStart && s.Method == MethodOverlay && (st.Step == nameOverlayStep || st.Step == switchStep):
		return OnOverlay, nil // the overlay reads as src, or has the writes of a guest that was started on it
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
// definition is changed back from dst. dst was a copy of src when it was named, and has more if the
// instance was started on it.
func (e *Env) leftOffline(ctx context.Context, s *Spec, opID string, records []op.Record) (Position, error) {
	note, err := notedRun(records, toDst.nameStep())
	if err != nil || note.DstNewer {
		return OnDst, err
	}
	return OnDst, e.sealed(ctx, s, opID)
}

// leftInSwitch is leftAt for a complete that waits in its switch. In the pause both chains were
// equal. For an old image that was written since, see endHasAll. Otherwise dst has everything, and
// more from a guest that was started on it.
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

// leftInPivot is leftAt for an op that waits in the pivot of a background job. libvirt names the
// end after QEMU has moved to it, and the guest may have run there since.
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

// leftBehindJob is leftAt for a complete that waits after the pivot of such a job.
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

// notRunOnDst refuses to name the old image if dst was, or may have been, written since the host
// was booted: each image may have writes that the other lacks.
func (e *Env) notRunOnDst(ctx context.Context, s *Spec) error {
	dst, err := e.images.Stamp(ctx, s.Dst.Path)
	if err != nil || dst.UntouchedInItsBoot() {
		return err
	}
	return api.Errorf(api.CodeChainChanged,
		"instance %s was resumed by somebody while its disk was switched to %s, and that was written after the host went down, by a start of the instance on it perhaps: it has what %s lacks, which may have the last writes from before; keep both, and compare them (docs/how-to/recover.md, A guest that was resumed in the switch)",
		s.InstanceName, s.Dst.Path, s.top())
}

// notedRun returns the newest note of the switch by this step in the records of an op.
func notedRun(records []op.Record, step string) (note runNote, err error) {
	for _, r := range records {
		if r.Step == step && r.Kind == op.EventNoted && err == nil {
			err = json.Unmarshal(r.Data, &note)
		}
	}
	return note, err
}

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
