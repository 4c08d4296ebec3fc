// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"cmp"
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/migrate/transfer"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// StepGuard keeps a stopped instance off while its overlay is folded. It sets the guard before it
// looks at the instance.
func (e *Env) StepGuard(doing string) op.Step {
	do := func(ctx context.Context, _ *op.Run, s *move.Spec) error {
		reason := fmt.Sprintf("Volferry is %s volume %s of this instance; it may start again in a moment", doing, s.VolumeName)
		if err := e.guards.Set(s.InstanceID, s.Owner(), reason); err != nil {
			return err
		}
		disk, err := e.move.ReadDisk(ctx, s)
		if err != nil {
			return err
		}
		if disk.Active {
			return look.GuestIsOn(s)
		}
		return look.AtRest(s, disk)
	}
	undo := func(_ context.Context, _ *op.Run, s *move.Spec) error { return e.guards.Clear(s.InstanceID, s.Owner()) }
	return move.Step("guard", do, undo, nil)
}

// StepUnguard restores the rights of src and removes the guard.
func (e *Env) StepUnguard() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *move.Spec) error {
		e.place.GiveBackSrcRights(ctx, s)
		return e.guards.Clear(s.InstanceID, s.Owner())
	}
	observe := func(_ context.Context, _ *op.Run, s *move.Spec) (op.Observation, error) {
		has, err := e.guards.Has(s.InstanceID, s.Owner())
		return op.DoneIf(!has), err
	}
	return move.Step("unguard", do, nil, observe)
}

// foldNote is written after the fold and before the definition names the new image, dst or src. A
// definition that names the new image without this note was changed by another program.
type foldNote struct {
	Folded bool `json:"folded"`
	move.FoldingNote
}

// StepFold merges a stopped instance's overlay into the new image (dst, or src for a cancel), and
// changes the definition to it. It is the commit point: from here the new image is the
// authoritative copy. The overlay keeps its data. So a fold is repeated if it was interrupted, or
// has not changed the definition: where the guard hook does not work, the instance may have run on
// the overlay since.
func (e *Env) StepFold(to move.Direction) op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		if err := e.mayFold(ctx, s, to); err != nil {
			return err
		}
		if err := e.look.EndNotInUse(ctx, s, to); err != nil {
			return err
		}
		if err := e.beginFold(ctx, r, s, to); err != nil {
			return err
		}
		if err := e.look.MayLeave(ctx, s, to, false); err != nil {
			return err
		}
		if to.End == move.OnSrc {
			if err := e.seal.DropSnapshotToFold(ctx, s); err != nil {
				return err
			}
		}
		e.progress.Set(s.MigrationID, move.Progress{Phase: "fold"})
		if err := e.images.Fold(ctx, s.Overlay, to.Chain(s)); err != nil {
			// QEMU has locked the images if the instance was started after mayFold.
			return cmp.Or(e.mayFold(ctx, s, to), e.foldError(s, err))
		}
		if err := r.Note(ctx, foldNote{Folded: true, FoldingNote: move.FoldingNote{Folding: to.End == move.OnSrc}}); err != nil {
			return err
		}
		if err := e.mayFold(ctx, s, to); err != nil {
			return err
		}
		if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, to.Chain(s)); err != nil {
			return e.move.HVError(err)
		}
		if err := e.RenameIfStarted(ctx, s, to); err != nil {
			return err
		}
		return e.look.RemarkBitmaps(ctx, r, s, to)
	}
	observe := func(ctx context.Context, r *op.Run, s *move.Spec) (op.Observation, error) {
		var note foldNote
		if _, err := r.Noted(FoldStep, &note); err != nil || !note.Folded {
			return op.NotDone, err
		}
		disk, err := e.move.ReadDisk(ctx, s)
		if err != nil {
			return op.Unknown, err
		}
		return op.DoneIf(disk.Config == to.End && (!disk.Active || disk.Live == to.End)), nil
	}
	return seal.Provided(move.Step(FoldStep, do, nil, observe), e.seal.EndUnchanged(to))
}

// FoldStep is the name of StepFold.
const FoldStep = "fold"

func (e *Env) foldError(s *move.Spec, err error) error {
	if !transfer.IsIOError(err) {
		return e.move.HVError(err) // libvirt returns the passphrase of a LUKS container
	}
	return api.Errorf(api.CodeIOError, "%v; the volume is on its overlay %s as before: mend the storage and call again", err, s.Overlay)
}

// beginFold makes sure, before a fold into src, that src was not written since its freeze, and
// notes the beginning of the fold.
func (e *Env) beginFold(ctx context.Context, r *op.Run, s *move.Spec, to move.Direction) error {
	var note foldNote
	if _, err := r.Noted(FoldStep, &note); err != nil || note.Folding || to.End != move.OnSrc {
		return err // verify_copy of a complete has checked the seal
	}
	if err := e.seal.Sealed(ctx, s, r.OpID()); err != nil {
		return err
	}
	return r.Note(ctx, foldNote{FoldingNote: move.FoldingNote{Folding: true}})
}

func (e *Env) mayFold(ctx context.Context, s *move.Spec, to move.Direction) error {
	if err := e.RenameIfStarted(ctx, s, to); err != nil {
		return err
	}
	disk, err := e.look.ConfirmDisk(ctx, s)
	if err != nil {
		return err
	}
	switch {
	case disk.Active:
		return look.GuestIsOn(s)
	case disk.Config != move.OnOverlay:
		return look.ChainChanged(s, disk)
	case disk.Dom.Snapshots+disk.Dom.Checkpoints > 0:
		return look.SnapshotsLost(s, disk.Dom)
	}
	return look.AtRest(s, disk)
}

// RenameIfStarted changes the definition back to the overlay if the instance was started on the
// overlay meanwhile, which is possible where the guard hook does not work: the overlay has the
// guest's new writes.
func (e *Env) RenameIfStarted(ctx context.Context, s *move.Spec, to move.Direction) error {
	disk, err := e.move.ReadDisk(ctx, s)
	if err != nil {
		return err
	}
	switch {
	case !disk.Active || disk.Live == to.End:
		return nil
	case disk.Config != to.End:
		return look.GuestIsOn(s)
	case disk.Live != move.OnOverlay:
		shutdown := shell.Line("virsh", "shutdown", "--", s.InstanceName)
		return op.UnknownOutcome(move.Cured(api.Errorf(api.CodeChainChanged,
			"instance %s was started on %s while its disk was moved with the instance off, and the definition names %s by now: what it writes there the volume does not get. Shut it down (`%s`), keep what you need of that, and call again; `%s` shows what is known",
			s.InstanceName, s.Place(disk.Live), s.Place(disk.Config), shutdown, s.WhichCommand()), shutdown))
	}
	if err := e.hv.SetConfigChain(ctx, s.InstanceID, s.Target, s.OverlayChain()); err != nil {
		return e.move.HVError(err)
	}
	return look.GuestIsOn(s)
}
