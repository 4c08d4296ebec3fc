// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/op"
)

// stepCreateOverlay makes the empty overlay over src, with the rights of src. QEMU needs them where
// libvirt does not change the rights of images. The owner of src needs them afterwards, since
// libvirt gives src the owner of the overlay when the guest is brought back.
func (e *Env) stepCreateOverlay() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *Spec) error {
		if err := e.images.CreateOverlay(ctx, s.Overlay, s.SrcImage(), s.OverlayBytes(), s.SrcRights); err != nil {
			return e.hvError(err) // libvirt returns the passphrase of a LUKS container
		}
		return e.checkOpens(ctx, s, s.Overlay)
	}
	observe := func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		_, err := e.images.CheckOverlay(ctx, s.Overlay, s.SrcImage(), s.OverlayBytes())
		// A file from an interrupted try is no overlay yet. No definition names it, and
		// CreateOverlay makes it again.
		return e.doneIfOpens(ctx, s, s.Overlay, op.DoneIf(err == nil), nil)
	}
	undo := func(ctx context.Context, r *op.Run, s *Spec) error {
		if err := e.overlayUnused(ctx, s); err != nil {
			return err
		}
		var note leftNote
		if _, err := r.Noted(nameOverlayStep, &note); err != nil {
			return err
		}
		// A guest may have run on the overlay and been put back on src since. Then its writes are
		// only in the overlay, unless an operator was asked to commit them.
		empty, err := e.images.CheckOverlay(ctx, s.Overlay, s.SrcImage(), s.OverlayBytes())
		if !note.Left && !errors.Is(err, image.ErrAbsent) && (err != nil || !empty) {
			return op.UnknownOutcome(overlayHasData(s, err))
		}
		return e.images.Remove(ctx, s.Overlay)
	}
	return provided(step("create_overlay", do, undo, observe), e.srcUnchanged)
}

func (e *Env) overlayUnused(ctx context.Context, s *Spec) error {
	disk, err := e.confirmDisk(ctx, s)
	if err != nil {
		return err
	}
	if disk.config == OnOverlay || disk.config == Foreign || (disk.active && (disk.live == OnOverlay || disk.live == Foreign)) {
		return op.UnknownOutcome(chainChanged(s, disk))
	}
	return e.notNamed(ctx, s.Overlay)
}

// stepRemoveOverlay removes the overlay at the end of a migration: its data is in dst (or back in
// src) and the registry knows the end.
func (e *Env) stepRemoveOverlay() op.Step {
	observe := func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		_, err := e.images.CheckOverlay(ctx, s.Overlay, s.SrcImage(), s.OverlayBytes())
		return op.DoneIf(errors.Is(err, image.ErrAbsent)), nil
	}
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		if err := e.overlayUnused(ctx, s); err != nil {
			return err
		}
		if err := e.images.Remove(ctx, s.Overlay); err != nil {
			return err
		}
		if _, err := e.endWriteLimits(ctx, s); err != nil { // the limits of a guest that is now off
			return err
		}
		if left := e.besideOverlay(s); left != "" {
			return r.SetOutput(remarkOutput{left})
		}
		return nil
	}
	return step("remove_overlay", do, nil, observe)
}

// besideOverlay returns a remark with the files that have the overlay's name with another ending:
// images of snapshots that another program made and merged meanwhile. It returns "" if there are
// none.
func (e *Env) besideOverlay(s *Spec) string {
	beside, err := e.images.Beside(s.Overlay)
	if err != nil || len(beside) == 0 {
		return ""
	}
	return fmt.Sprintf("kept, since this move has not made it: %s; delete it if no domain needs it (an image of a snapshot, by its name)", strings.Join(beside, ", "))
}

// stepNameOverlay changes the definition to the overlay over src before the running guest is
// switched. The overlay is empty and reads as src, so a crash before or after the switch does no
// harm ("superset first").
func (e *Env) stepNameOverlay() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *Spec) error {
		disk, err := e.readDisk(ctx, s)
		if err != nil {
			return err
		}
		if disk.config != OnSrc && disk.config != OnOverlay {
			return chainChanged(s, disk)
		}
		return e.hvError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.OverlayChain()))
	}
	undo := func(ctx context.Context, r *op.Run, s *Spec) error {
		disk, err := e.confirmDisk(ctx, s)
		if err != nil {
			return err
		}
		switch {
		case disk.config == OnSrc:
			return nil
		case disk.config == OnOverlay && disk.active && disk.live == OnOverlay:
			return leftOnOverlay(ctx, r, s, disk)
		case disk.config != OnOverlay, disk.active && disk.live != OnSrc:
			return op.UnknownOutcome(chainChanged(s, disk))
		case disk.active:
			return e.unnameLiveOverlay(ctx, r, s)
		}
		return e.unnameUnusedOverlay(ctx, r, s)
	}
	observe := func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		disk, err := e.readDisk(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		return op.DoneIf(disk.config == OnOverlay), nil
	}
	return provided(step(nameOverlayStep, do, undo, observe), e.srcUnchanged)
}

const nameOverlayStep = "name_overlay"

// leftNote records that the operator was asked to commit the overlay of a start that is undone.
type leftNote struct {
	Left bool `json:"left"`
}

func leftOnOverlay(ctx context.Context, r *op.Run, s *Spec, disk *diskState) error {
	if err := r.Note(ctx, leftNote{true}); err != nil {
		return err
	}
	return op.UnknownOutcome(overlayLeft(s, disk))
}

// unnameLiveOverlay removes the overlay from the definition of a guest that runs on src, and looks
// again: the snapshot may have been queued in libvirt before the change.
func (e *Env) unnameLiveOverlay(ctx context.Context, r *op.Run, s *Spec) error {
	if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.SrcChain()); err != nil {
		return e.hvError(err)
	}
	disk, err := e.confirmDisk(ctx, s)
	var disagreed *errWitnessesDisagree
	late := errors.As(err, &disagreed) && disagreed.at == OnOverlay || err == nil && disk.active && disk.live == OnOverlay
	if !late {
		return err
	}
	if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.OverlayChain()); err != nil {
		return e.hvError(err)
	}
	if err == nil {
		err = leftOnOverlay(ctx, r, s, disk)
	}
	return err
}

// unnameUnusedOverlay removes the overlay from the definition of a stopped instance, which may have
// run on the overlay since. So only an empty overlay is given up, and the guard prevents a start
// meanwhile.
func (e *Env) unnameUnusedOverlay(ctx context.Context, r *op.Run, s *Spec) error {
	if err := e.guards.Set(s.InstanceID, s.Owner(), "Volferry is undoing the start of a migration of volume "+s.VolumeName); err != nil {
		return err
	}
	err := e.unnameUnderGuard(ctx, r, s)
	return errors.Join(err, e.guards.Clear(s.InstanceID, s.Owner()))
}

func (e *Env) unnameUnderGuard(ctx context.Context, r *op.Run, s *Spec) error {
	disk, err := e.confirmDisk(ctx, s)
	if err != nil {
		return err
	}
	if disk.active {
		return op.Retry(request.BusyDelay, guestIsOn(s))
	}
	empty, err := e.images.CheckOverlay(ctx, s.Overlay, s.SrcImage(), s.OverlayBytes())
	if err != nil {
		return op.UnknownOutcome(errors.Join(chainChanged(s, disk), err))
	}
	if !empty {
		return leftOnOverlay(ctx, r, s, disk)
	}
	return e.hvError(e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.SrcChain()))
}
