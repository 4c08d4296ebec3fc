// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
)

// StepCreateOverlay makes the empty overlay over src, with src's rights. QEMU needs these rights
// where libvirt does not change the rights of images. Later the owner matters, since libvirt gives
// src the owner of the overlay when the guest is brought back.
func (e *Env) StepCreateOverlay() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *move.Spec) error {
		if err := e.images.CreateOverlay(ctx, s.Overlay, s.SrcImage(), s.OverlayBytes(), s.SrcRights); err != nil {
			return e.move.HVError(err) // libvirt returns the passphrase of a LUKS container
		}
		return e.look.CheckOpens(ctx, s, s.Overlay)
	}
	observe := func(ctx context.Context, _ *op.Run, s *move.Spec) (op.Observation, error) {
		_, err := e.images.CheckOverlay(ctx, s.Overlay, s.SrcImage(), s.OverlayBytes())
		// A file from an interrupted try does not count: no definition names it, and CreateOverlay
		// makes it again.
		return e.look.DoneIfOpens(ctx, s, s.Overlay, op.DoneIf(err == nil), nil)
	}
	undo := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		if err := e.overlayUnused(ctx, s); err != nil {
			return err
		}
		var note leftNote
		if _, err := r.Noted(nameOverlayStep, &note); err != nil {
			return err
		}
		// A guest may have run on the overlay and returned to src. Then only the overlay has its
		// writes, unless an operator was asked to commit them.
		empty, err := e.images.CheckOverlay(ctx, s.Overlay, s.SrcImage(), s.OverlayBytes())
		if !note.Left && !errors.Is(err, image.ErrAbsent) && (err != nil || !empty) {
			return op.UnknownOutcome(look.OverlayHasData(s, err))
		}
		return e.images.Remove(ctx, s.Overlay)
	}
	return seal.Provided(move.Step("create_overlay", do, undo, observe), e.seal.SrcUnchanged)
}

func (e *Env) overlayUnused(ctx context.Context, s *move.Spec) error {
	disk, err := e.look.ConfirmDisk(ctx, s)
	if err != nil {
		return err
	}
	if disk.Config == move.OnOverlay || disk.Config == move.Foreign || (disk.Active && (disk.Live == move.OnOverlay || disk.Live == move.Foreign)) {
		return op.UnknownOutcome(look.ChainChanged(s, disk))
	}
	return e.look.NotNamed(ctx, s.Overlay)
}

// StepRemoveOverlay removes the overlay at the end of a migration: dst or src has its data, and
// the registry has recorded the end.
func (e *Env) StepRemoveOverlay() op.Step {
	observe := func(ctx context.Context, _ *op.Run, s *move.Spec) (op.Observation, error) {
		_, err := e.images.CheckOverlay(ctx, s.Overlay, s.SrcImage(), s.OverlayBytes())
		return op.DoneIf(errors.Is(err, image.ErrAbsent)), nil
	}
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		if err := e.overlayUnused(ctx, s); err != nil {
			return err
		}
		if err := e.images.Remove(ctx, s.Overlay); err != nil {
			return err
		}
		if _, err := e.blockjob.EndWriteLimits(ctx, s); err != nil { // of a guest that is now off
			return err
		}
		if left := e.BesideOverlay(s); left != "" {
			return r.SetOutput(move.RemarkOutput{Remark: left})
		}
		return nil
	}
	return move.Step("remove_overlay", do, nil, observe)
}

// BesideOverlay returns a remark about files with the overlay's name and another ending, or "".
// They are images of snapshots that another program has made and merged meanwhile.
func (e *Env) BesideOverlay(s *move.Spec) string {
	beside, err := e.images.Beside(s.Overlay)
	if err != nil || len(beside) == 0 {
		return ""
	}
	return fmt.Sprintf("kept, since this move has not made it: %s; delete it if no domain needs it (an image of a snapshot, by its name)", strings.Join(beside, ", "))
}

// StepNameOverlay changes the definition to the overlay over src before the running guest is
// switched. The empty overlay reads as src, so a crash before or after the switch does no harm.
func (e *Env) StepNameOverlay() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *move.Spec) error {
		disk, err := e.move.ReadDisk(ctx, s)
		if err != nil {
			return err
		}
		if disk.Config != move.OnSrc && disk.Config != move.OnOverlay {
			return look.ChainChanged(s, disk)
		}
		return e.move.HVError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.OverlayChain()))
	}
	undo := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		disk, err := e.look.ConfirmDisk(ctx, s)
		if err != nil {
			return err
		}
		switch {
		case disk.Config == move.OnSrc:
			return nil
		case disk.Config == move.OnOverlay && disk.Active && disk.Live == move.OnOverlay:
			return leftOnOverlay(ctx, r, s, disk)
		case disk.Config != move.OnOverlay, disk.Active && disk.Live != move.OnSrc:
			return op.UnknownOutcome(look.ChainChanged(s, disk))
		case disk.Active:
			return e.unnameLiveOverlay(ctx, r, s)
		}
		return e.unnameUnusedOverlay(ctx, r, s)
	}
	observe := func(ctx context.Context, _ *op.Run, s *move.Spec) (op.Observation, error) {
		disk, err := e.move.ReadDisk(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		return op.DoneIf(disk.Config == move.OnOverlay), nil
	}
	return seal.Provided(move.Step(nameOverlayStep, do, undo, observe), e.seal.SrcUnchanged)
}

const nameOverlayStep = "name_overlay"

// leftNote records that the operator was asked to commit the overlay of an undone start.
type leftNote struct {
	Left bool `json:"left"`
}

func leftOnOverlay(ctx context.Context, r *op.Run, s *move.Spec, disk *move.DiskState) error {
	if err := r.Note(ctx, leftNote{true}); err != nil {
		return err
	}
	return op.UnknownOutcome(look.OverlayLeft(s, disk))
}

// unnameLiveOverlay removes the overlay from the definition of a guest that runs on src. libvirt
// may have queued the switch before that: if the guest is on the overlay then, the definition
// names the overlay again.
func (e *Env) unnameLiveOverlay(ctx context.Context, r *op.Run, s *move.Spec) error {
	if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.SrcChain()); err != nil {
		return e.move.HVError(err)
	}
	disk, err := e.look.ConfirmDisk(ctx, s)
	var disagreed *look.WitnessesDisagreeError
	late := errors.As(err, &disagreed) && disagreed.At == move.OnOverlay || err == nil && disk.Active && disk.Live == move.OnOverlay
	if !late {
		return err
	}
	if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.OverlayChain()); err != nil {
		return e.move.HVError(err)
	}
	if err == nil {
		err = leftOnOverlay(ctx, r, s, disk)
	}
	return err
}

// unnameUnusedOverlay removes the overlay from the definition of a stopped instance, if the
// overlay is empty: the instance may have run on it. The guard prevents a start meanwhile.
func (e *Env) unnameUnusedOverlay(ctx context.Context, r *op.Run, s *move.Spec) error {
	if err := e.guards.Set(s.InstanceID, s.Owner(), "Volferry is undoing the start of a migration of volume "+s.VolumeName); err != nil {
		return err
	}
	err := e.unnameUnderGuard(ctx, r, s)
	return errors.Join(err, e.guards.Clear(s.InstanceID, s.Owner()))
}

func (e *Env) unnameUnderGuard(ctx context.Context, r *op.Run, s *move.Spec) error {
	disk, err := e.look.ConfirmDisk(ctx, s)
	if err != nil {
		return err
	}
	if disk.Active {
		return op.Retry(request.BusyDelay, look.GuestIsOn(s))
	}
	empty, err := e.images.CheckOverlay(ctx, s.Overlay, s.SrcImage(), s.OverlayBytes())
	if err != nil {
		return op.UnknownOutcome(errors.Join(look.ChainChanged(s, disk), err))
	}
	if !empty {
		return leftOnOverlay(ctx, r, s, disk)
	}
	return e.move.HVError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.SrcChain()))
}
