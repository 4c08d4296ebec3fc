// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"cmp"
	"context"
	"fmt"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// stepGuard keeps a stopped instance off while its overlay is folded. It sets the guard before it
// looks at the state, so that no start comes in between.
func (e *Env) stepGuard(doing string) op.Step {
	do := func(ctx context.Context, _ *op.Run, s *Spec) error {
		reason := fmt.Sprintf("Volferry is %s volume %s of this instance; it may start again in a moment", doing, s.VolumeName)
		if err := e.guards.Set(s.InstanceID, s.Owner(), reason); err != nil {
			return err
		}
		disk, err := e.readDisk(ctx, s)
		if err != nil {
			return err
		}
		if disk.active {
			return guestIsOn(s)
		}
		return atRest(s, disk)
	}
	undo := func(_ context.Context, _ *op.Run, s *Spec) error { return e.guards.Clear(s.InstanceID, s.Owner()) }
	return step("guard", do, undo, nil)
}

// stepUnguard restores the rights of src and allows the instance to start again.
func (e *Env) stepUnguard() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *Spec) error {
		e.giveBackSrcRights(ctx, s)
		return e.guards.Clear(s.InstanceID, s.Owner())
	}
	observe := func(_ context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		has, err := e.guards.Has(s.InstanceID, s.Owner())
		return op.DoneIf(!has), err
	}
	return step("unguard", do, nil, observe)
}

// foldNote is written after the fold and before the definition names the end. If a definition names
// the end without this note, another program has changed it.
type foldNote struct {
	Folded bool `json:"folded"`
	foldingNote
}

// stepFold merges the overlay of a stopped instance into the end of the direction, and changes the
// definition to that end. It is the commit point: from here the end is the authoritative copy. The
// overlay keeps its data, so an interrupted fold is repeated, and so is a fold without a changed
// definition: where the guard hook does not work, the instance may have run on the overlay since.
func (e *Env) stepFold(to direction) op.Step {
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		if err := e.mayFold(ctx, s, to); err != nil {
			return err
		}
		if err := e.endNotInUse(ctx, s, to); err != nil {
			return err
		}
		if err := e.beginFold(ctx, r, s, to); err != nil {
			return err
		}
		if err := e.mayLeave(ctx, s, to, false); err != nil {
			return err
		}
		if to.end == OnSrc {
			if err := e.dropSnapshotToFold(ctx, s); err != nil {
				return err
			}
		}
		e.progress.set(s.MigrationID, Progress{Phase: "fold"})
		if err := e.images.Fold(ctx, s.Overlay, to.chain(s)); err != nil {
			// The images of an instance that was started since mayFold are locked.
			return cmp.Or(e.mayFold(ctx, s, to), e.foldError(s, err))
		}
		if err := r.Note(ctx, foldNote{Folded: true, foldingNote: foldingNote{to.end == OnSrc}}); err != nil {
			return err
		}
		if err := e.mayFold(ctx, s, to); err != nil {
			return err
		}
		if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, to.chain(s)); err != nil {
			return e.hvError(err)
		}
		if err := e.renameIfStarted(ctx, s, to); err != nil {
			return err
		}
		return e.remarkBitmaps(ctx, r, s, to)
	}
	observe := func(ctx context.Context, r *op.Run, s *Spec) (op.Observation, error) {
		var note foldNote
		if _, err := r.Noted(foldStep, &note); err != nil || !note.Folded {
			return op.NotDone, err
		}
		disk, err := e.readDisk(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		return op.DoneIf(disk.config == to.end && (!disk.active || disk.live == to.end)), nil
	}
	return provided(step(foldStep, do, nil, observe), e.endUnchanged(to))
}

const foldStep = "fold"

func (e *Env) foldError(s *Spec, err error) error {
	if !isIOError(err) {
		return e.hvError(err) // libvirt returns the passphrase of a LUKS container
	}
	return api.Errorf(api.CodeIOError, "%v; the volume is on its overlay %s as before: mend the storage and call again", err, s.Overlay)
}

// beginFold makes sure that src was not written since it was frozen, and notes that a fold into src
// begins.
func (e *Env) beginFold(ctx context.Context, r *op.Run, s *Spec, to direction) error {
	var note foldNote
	if _, err := r.Noted(foldStep, &note); err != nil || note.Folding || to.end != OnSrc {
		return err // a complete has checked the seal in verify_copy
	}
	if err := e.sealed(ctx, s, r.OpID()); err != nil {
		return err
	}
	return r.Note(ctx, foldNote{foldingNote: foldingNote{Folding: true}})
}

// mayFold makes sure that the instance is off and its disk is on the overlay.
func (e *Env) mayFold(ctx context.Context, s *Spec, to direction) error {
	if err := e.renameIfStarted(ctx, s, to); err != nil {
		return err
	}
	disk, err := e.confirmDisk(ctx, s)
	if err != nil {
		return err
	}
	switch {
	case disk.active:
		return guestIsOn(s)
	case disk.config != OnOverlay:
		return chainChanged(s, disk)
	case disk.dom.Snapshots+disk.dom.Checkpoints > 0:
		return snapshotsLost(s, disk.dom)
	}
	return atRest(s, disk)
}

// renameIfStarted changes the definition back to the overlay if the instance was started on it
// during the change, which is possible where the guard hook does not work: the guest's new writes
// are in the overlay.
func (e *Env) renameIfStarted(ctx context.Context, s *Spec, to direction) error {
	disk, err := e.readDisk(ctx, s)
	if err != nil {
		return err
	}
	switch {
	case !disk.active || disk.live == to.end:
		return nil
	case disk.config != to.end:
		return guestIsOn(s)
	case disk.live != OnOverlay:
		shutdown := api.ShellLine("virsh", "shutdown", "--", s.InstanceName)
		return op.UnknownOutcome(cured(api.Errorf(api.CodeChainChanged,
			"instance %s was started on %s while its disk was moved with the instance off, and the definition names %s by now: what it writes there the volume does not get. Shut it down (`%s`), keep what you need of that, and call again; `%s` shows what is known",
			s.InstanceName, s.place(disk.live), s.place(disk.config), shutdown, s.whichCommand()), shutdown))
	}
	if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.OverlayChain()); err != nil {
		return e.hvError(err)
	}
	return guestIsOn(s)
}
