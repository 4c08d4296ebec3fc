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
// is, while an op of the migration waits for the operator: of a running guest that which its process
// has, if libvirt and the kernel agree, and of one that is off that which the op has left it on. At
// is where the journal has the disk, records are those of the op. Errors are typed for the runner.
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
		if at, err = e.leftAt(ctx, s, at, st, records); err != nil {
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
func (e *Env) leftAt(ctx context.Context, s *Spec, at Position, st *op.Status, records []op.Record) (Position, error) {
	switch goal := GoalOf(st.Op.Kind); {
	case st.Op.Kind == KindCancelCommitted:
		return OnSrc, nil // to which somebody has committed the overlay
	case goal == GoalStart && s.Method == MethodOverlay && (st.Step == nameOverlayStep || st.Step == switchStep):
		return OnOverlay, nil // it reads as src, or has what the guest wrote since it was started on it
	case goal == GoalCancel && st.Step == toSrc.nameStep():
		return OnOverlay, nil // the same, since the guest has not run on src yet
	case goal == GoalComplete && s.Method != MethodOffline && (st.Step == toDst.nameStep() || st.Step == pivotStep):
		return e.leftInSwitch(ctx, s, records)
	}
	return at, nil
}

// leftInSwitch is leftAt for a complete that waits in its switch. In the pause both chains were the
// same. If the image that was left has been written since, the guest was resumed by hand, and has
// written to both; else dst has all, and may have more by a guest that was started on it.
func (e *Env) leftInSwitch(ctx context.Context, s *Spec, records []op.Record) (Position, error) {
	var note runNote
	for _, r := range records {
		if r.Step == toDst.nameStep() && r.Kind == op.EventNoted {
			if err := json.Unmarshal(r.Data, &note); err != nil {
				return Foreign, err
			}
		}
	}
	now, err := e.images.Stamp(ctx, s.top())
	if err != nil {
		return Foreign, err
	}
	switch {
	case note.DstNewer:
		return OnDst, nil
	case now.WrittenSince(note.Top):
		return s.Before(), nil
	case now.Device && now.RebootedSince(note.Top):
		return Foreign, api.Errorf(api.CodeChainChanged,
			"the host was booted since instance %s stood still in its switch to %s, and the kernel does not know any more whether %s was written before: nobody can tell which of the two has the newest writes; compare them, and keep both until you know",
			s.InstanceName, s.Dst.Path, s.top())
	}
	return OnDst, nil
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
