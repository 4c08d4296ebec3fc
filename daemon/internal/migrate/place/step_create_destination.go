// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"errors"
	"io/fs"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/migrate/seal"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// StepCreateDestination makes dst, unless the operator named an existing image.
func (e *Env) StepCreateDestination() op.Step {
	do := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		// Preflight checked this before dst was reserved: another program may have taken dst, by a
		// name that the registry does not know.
		if err := e.look.CheckFree(ctx, s.Dst.Path, location.Self{MigrationID: s.MigrationID}); err != nil {
			return e.move.HVError(e.move.RegistryError(err))
		}
		if s.DstOrigin() == move.DstExists {
			return e.takeDestination(ctx, r, s)
		}
		var note move.DstNote
		if _, err := r.Noted(move.CreateDestinationStep, &note); err != nil {
			return err
		}
		if err := e.makeDestination(ctx, r, s, note); err != nil {
			return err
		}
		if err := e.fillDevice(ctx, r, s); err != nil {
			return err
		}
		return e.look.CheckOpens(ctx, s, s.Dst.Path) // before anything is frozen
	}
	undo := func(ctx context.Context, r *op.Run, s *move.Spec) error {
		var note move.DstNote
		if _, err := r.Noted(move.CreateDestinationStep, &note); err != nil || !note.Ours {
			return err
		}
		return e.removeDestination(ctx, s, note)
	}
	observe := func(ctx context.Context, r *op.Run, s *move.Spec) (op.Observation, error) {
		var note move.DstNote
		if ok, err := r.Noted(move.CreateDestinationStep, &note); err != nil || !ok || note.Ours != s.CreateDst || note.Formatted != s.DstOnDevice() {
			return op.NotDone, err
		}
		is, err := e.observeDestination(ctx, s, note)
		return e.look.DoneIfOpens(ctx, s, s.Dst.Path, is, err)
	}
	return move.Step(move.CreateDestinationStep, do, undo, observe)
}

func (e *Env) takeDestination(ctx context.Context, r *op.Run, s *move.Spec) error {
	note := move.DstNote{Free: true, Formatted: s.DstOnDevice()}
	if note.Formatted {
		if err := e.createOnDevice(ctx, s, s.DstPrint); err != nil {
			return err
		}
	}
	return r.Note(ctx, note)
}

// fillDevice makes the qcow2 image on a new device and then notes it. An image without this note
// may be incomplete, and is made again.
func (e *Env) fillDevice(ctx context.Context, r *op.Run, s *move.Spec) error {
	var note move.DstNote
	if _, err := r.Noted(move.CreateDestinationStep, &note); err != nil || note.Formatted || !s.DstOnDevice() {
		return err
	}
	if err := e.createOnDevice(ctx, s, note.Print); err != nil {
		return err
	}
	note.Formatted = true
	return r.Note(ctx, note)
}

func (e *Env) createOnDevice(ctx context.Context, s *move.Spec, fingerprint string) error {
	err := e.maker.CreateOnDevice(ctx, s.Dst.Path, s.SizeBytes(), fingerprint)
	if other := (*image.ReplacedError)(nil); errors.As(err, &other) {
		return seal.DstReplaced(s.Dst.Path, fingerprint, other.Found)
	}
	return err
}

// makeDestination makes dst, or finishes an interrupted attempt. An image at dst's path that the
// journal does not know is another program's.
func (e *Env) makeDestination(ctx context.Context, r *op.Run, s *move.Spec, note move.DstNote) error {
	if s.DstOrigin() == move.DstConnected {
		return e.connectDestination(ctx, r, s)
	}
	if err := e.removeTemporary(ctx, s, note); err != nil {
		return err
	}
	whose, err := e.dstOwner(ctx, s, note)
	switch {
	case err != nil:
		return err
	case whose == ownedByOthers:
		return e.destinationTaken(ctx, r, s)
	case whose == ownedByUs:
		unfinished, err := e.dstUnfinished(ctx, s, note)
		if err != nil {
			return err
		}
		if !unfinished {
			return e.noteMade(ctx, r, s, note)
		}
		if err := e.removeDestination(ctx, s, note); err != nil {
			return err
		}
	}
	note = move.DstNote{Ours: true}
	if s.Dst.Pool == "" {
		note.Temporary = image.TemporaryName()
	}
	if err := r.Note(ctx, note); err != nil {
		return err
	}
	if s.Dst.Pool != "" {
		err = e.createInPool(ctx, r, s, note)
	} else {
		err = e.createAtPath(ctx, r, s, note)
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, hv.ErrExists) {
		return e.destinationTaken(ctx, r, s)
	}
	return e.move.HVError(err)
}

func (e *Env) createAtPath(ctx context.Context, r *op.Run, s *move.Spec, note move.DstNote) error {
	return e.maker.Create(ctx, s.DstImage(), s.SizeBytes(), image.NewFile{
		Temporary: note.Temporary,
		Backing:   s.DstChain()[1:],
		Rights:    rightsOfDst(s),
		Like:      s.Src.Path,
		Left:      func(left []string) { e.warnRefusedRights(s, s.Dst.Path, left) },
		Whole: func(fingerprint string) error {
			note.Print = fingerprint
			return r.Note(ctx, note)
		},
	})
}

func (e *Env) createInPool(ctx context.Context, r *op.Run, s *move.Spec, note move.DstNote) error {
	format := s.Dst.Format
	if s.DstOnDevice() {
		format = api.FormatRaw // for the pool; the qcow2 image is made on it later
	}
	vol, err := e.pools.CreateVolume(ctx, s.Dst.Pool, s.Dst.Name, string(format), s.DstRoomBytes(), s.DstChain()[1:])
	if err != nil {
		return err
	}
	if vol.Path != s.Dst.Path {
		err := api.Errorf(api.CodeInternal, "pool %s made %s where %s was reserved", s.Dst.Pool, vol.Path, s.Dst.Path)
		return errors.Join(err, e.pools.DeleteVolume(ctx, s.Dst.Pool, s.Dst.Name))
	}
	return e.noteMade(ctx, r, s, note)
}

// destinationTaken refuses another owner's dst, and notes that it must not be deleted.
func (e *Env) destinationTaken(ctx context.Context, r *op.Run, s *move.Spec) error {
	if err := r.Note(ctx, move.DstNote{Ours: false}); err != nil {
		return err
	}
	return api.Errorf(api.CodeDstInUse, "cannot create %s: something is there already that this migration did not make; it is left as it is", s.Dst.Path)
}

func (e *Env) dstWhole(ctx context.Context, s *move.Spec) (bool, error) {
	info, err := e.images.Inspect(ctx, s.Dst)
	if errors.Is(err, image.ErrAbsent) {
		return false, nil
	}
	return err == nil && s.Dst.VolumeBytes(info.SizeBytes) == s.SizeBytes() && location.Image(s.Dst, info.Block) == s.DstImage(), err
}

// dstUnfinished reports whether the file at dst's path is an empty file of an interrupted attempt,
// without a fingerprint in the journal: if qemu-img dies, libvirt leaves its file.
func (e *Env) dstUnfinished(ctx context.Context, s *move.Spec, note move.DstNote) (bool, error) {
	if note.Print != "" || s.DstOrigin() == move.DstConnected {
		return false, nil
	}
	if whose, err := e.dstOwner(ctx, s, note); err != nil || whose != ownedByUs {
		return false, err
	}
	whole, err := e.dstWhole(ctx, s)
	code := api.CodeOf(err)
	switch {
	case code == api.CodeUnsupportedDisk:
		return true, nil
	case code == api.CodeChainChanged && s.KeepsBase(): // qemu-img writes the base image into the header last
		return true, nil
	}
	return !whole, err
}

func (e *Env) observeDestination(ctx context.Context, s *move.Spec, note move.DstNote) (op.Observation, error) {
	whole, err := e.dstWhole(ctx, s)
	if err != nil {
		if unfinished, _ := e.dstUnfinished(ctx, s, note); unfinished {
			return op.NotDone, nil
		}
		return op.Unknown, err
	}
	if !whole {
		return op.NotDone, nil
	}
	if !note.Ours {
		return op.Done, nil
	}
	if note.Temporary != "" {
		if _, err := e.images.Fingerprint(ctx, temporaryPath(s, note)); !errors.Is(err, image.ErrAbsent) {
			return op.NotDone, err
		}
	}
	whose, err := e.dstOwner(ctx, s, note)
	return op.DoneIf(whose == ownedByUs && note.Print != ""), err
}
