// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/blockjob"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

func (e *Env) underGuard(s *move.Spec, doing string, do func() error) error {
	if err := e.guards.Set(s.InstanceID, s.Owner(), "Volferry is "+doing+" the switch of volume "+s.VolumeName+" of this instance; it may start again in a moment"); err != nil {
		return err
	}
	return errors.Join(do(), e.guards.Clear(s.InstanceID, s.Owner()))
}

// unnameEnd changes the definition back from dst when the switch to dst is undone. The instance
// may have been started on dst, so both images must read the same.
func (e *Env) unnameEnd(ctx context.Context, r *op.Run, s *move.Spec) error {
	if err := e.offAtEnd(ctx, s); err != nil {
		return err
	}
	if !e.move.MayTakeLong(ctx, s) {
		return op.UnknownOutcome(api.Errorf(api.CodeStaleEpoch,
			"this host was fenced before %s and %s were compared, between which the switch of instance %s is taken back: call again once the host has rejoined; nothing was deleted; `%s` shows what is known",
			s.Top(), s.Dst.Path, s.InstanceName, s.WhichCommand()))
	}
	before, err := e.images.Stamp(ctx, s.Dst.Path)
	if err != nil {
		return err
	}
	err = e.move.CompareUntilFenced(ctx, s, s.DstChain())
	switch {
	case api.CodeOf(err) == api.CodeCopyMismatch:
		return e.endDiffers(ctx, r, s)
	case err != nil:
		return e.move.HVError(err)
	}
	if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.BeforeChain()); err != nil {
		return e.move.HVError(err)
	}
	return e.renameEndIfWritten(ctx, s, before)
}

func (e *Env) offAtEnd(ctx context.Context, s *move.Spec) error {
	disk, err := e.look.ConfirmDisk(ctx, s)
	switch {
	case err != nil:
		return err
	case disk.Config != move.OnDst:
		return op.Retry(request.BusyDelay, look.ChainChanged(s, disk)) // it named dst when this undo began
	case disk.Active:
		shutdown := shell.Line("virsh", "shutdown", "--", s.InstanceName)
		return op.UnknownOutcome(move.Cured(api.Errorf(api.CodeChainChanged,
			"instance %s was started on %s while its switch there was taken back: shut it down (`%s`), and call again; nothing was deleted; `%s` shows what is known",
			s.InstanceName, s.Place(disk.Live), shutdown, s.WhichCommand()), shutdown))
	}
	if err := look.AtRest(s, disk); err != nil {
		return op.UnknownOutcome(err)
	}
	return nil
}

// renameEndIfWritten changes the definition back to dst if dst was written since the comparison.
// This is possible where the guard hook does not work: only dst has the guest's new writes.
func (e *Env) renameEndIfWritten(ctx context.Context, s *move.Spec, compared image.Stamp) error {
	disk, err := e.move.ReadDisk(ctx, s)
	if err != nil {
		return err
	}
	now, err := e.images.Stamp(ctx, s.Dst.Path)
	if err != nil {
		return err
	}
	started := disk.Active && disk.Live == move.OnDst
	if !started && !now.WrittenSince(compared) {
		return nil
	}
	if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.DstChain()); err != nil {
		return e.move.HVError(err)
	}
	return op.Retry(request.BusyDelay, look.GuestIsOn(s))
}

// endDiffers returns the error for a dst that differs from the old image when the switch to dst is
// undone. While the guest was paused both read the same. If the old image was written since, a
// guest that another program resumed wrote to both, but dst may lack its last flushed writes from
// before the host went down. Otherwise the guest was started on dst and wrote only there.
func (e *Env) endDiffers(ctx context.Context, r *op.Run, s *move.Spec) error {
	var note blockjob.RunNote
	step := NameDstStep
	if r.Has(NameDstWhileOffStep) {
		step = NameDstWhileOffStep
	}
	noted, err := r.Noted(step, &note)
	if err != nil {
		return err
	}
	now, err := e.images.Stamp(ctx, s.Top())
	if err != nil {
		return err
	}
	if noted && !note.DstNewer && now.WrittenSince(note.Top) && now.RebootedSince(note.Top) {
		return op.UnknownOutcome(resumedByHand(s, false))
	}
	differs := api.Errorf(api.CodeChainChanged,
		"instance %s was started on %s while its switch there was taken back, and has written there what %s lacks; nothing was deleted; `%s` shows what is known",
		s.InstanceName, s.Dst.Path, s.Place(s.Before()), s.WhichCommand())
	// It may be unknown whether only dst was written: the host was rebooted, which resets the
	// kernel's counters, or, without a pause, src has changed.
	unsure := !note.DstNewer && now.Device && now.RebootedSince(note.Top)
	if !noted {
		unsealed := e.seal.Sealed(ctx, s, r.OpID())
		if unsealed != nil && api.CodeOf(unsealed) != api.CodeChainChanged {
			return unsealed
		}
		unsure = unsealed != nil
	}
	if unsure || !s.Convertible() {
		return op.UnknownOutcome(differs)
	}
	note.DstNewer = true
	if err := r.Note(ctx, note); err != nil {
		return err
	}
	convert := move.ConvertCommand(string(s.Dst.Format), s.BeforeChain()[0].Format, s.Dst.Path, s.Top())
	differs.Message += "; write it there with the instance off (`" + convert + "`), and call again"
	return op.UnknownOutcome(move.Cured(differs, convert))
}

// resumedByHand returns the error for a guest that was resumed in its switch: its last flushed
// writes may be only in the image from before the switch.
func resumedByHand(s *move.Spec, runs bool) *api.Error {
	resumed := api.Errorf(api.CodeChainChanged,
		"instance %s was resumed by somebody while its disk was switched to %s, wrote, and the host went down before the switch was over: the last writes that it flushed may be in %s alone. "+
			"Nothing was deleted. If it has not run since, `%s` names that image again, and the same call goes on from there; else docs/how-to/recover.md (A guest that was resumed in the switch) says what can be done",
		s.InstanceName, s.Dst.Path, s.Top(), s.RepairCommand())
	if runs {
		return resumed
	}
	return move.Cured(resumed, s.RepairCommand())
}
