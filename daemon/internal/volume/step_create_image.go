// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// claimNote is an op's record about its new image. The op writes it before it makes the image, and
// again when the image exists.
type claimNote struct {
	Ours bool `json:"ours"`
	// Print is the fingerprint of the new image. It is empty until the fingerprint is known.
	Print string `json:"print,omitempty"`
}

func (e *env) stepCreateImage() op.Step {
	do := func(ctx context.Context, r *op.Run, in *input) error {
		var note claimNote
		if _, err := r.Noted(stepNameCreateImage, &note); err != nil {
			return err
		}
		l := in.Volume.Location
		found, err := e.inPool(ctx, l)
		if err != nil {
			return err
		}
		if found != nil {
			return e.takeMade(ctx, r, l, found, note)
		}
		if err := r.Note(ctx, claimNote{Ours: true}); err != nil {
			return err
		}
		made, err := e.Pools.CreateVolume(ctx, l.Pool, l.Name, string(l.Format), l.WholeBytes(), nil)
		if errors.Is(err, hv.ErrExists) {
			return e.notOurs(ctx, r, placeTaken(l))
		}
		if err != nil {
			return request.HV(err)
		}
		return e.noteMade(ctx, r, l, made)
	}
	undo := func(ctx context.Context, r *op.Run, in *input) error {
		var note claimNote
		if _, err := r.Noted(stepNameCreateImage, &note); err != nil || !note.Ours {
			return err
		}
		return e.removeMade(ctx, r.OpID(), in, note)
	}
	observe := func(ctx context.Context, r *op.Run, in *input) (op.Observation, error) {
		var note claimNote
		if _, err := r.Noted(stepNameCreateImage, &note); err != nil || !note.Ours {
			return op.NotDone, err
		}
		made := in.Volume.Location
		found, err := e.inPool(ctx, made)
		if err != nil || found == nil || found.CapacityBytes != made.WholeBytes() {
			return op.NotDone, err
		}
		if mine, err := e.isMade(ctx, r.OpID(), found, note); err != nil || !mine {
			return op.NotDone, err
		}
		made.Path, made.Identity = found.Path, image.IdentityIn(note.Print)
		return op.Done, r.SetOutput(made)
	}
	return step(stepNameCreateImage, do, undo, observe)
}

// noteMade records the pool's new image once QEMU can open it. If that fails, it deletes the
// image, because no record would show that this op made it.
func (e *env) noteMade(ctx context.Context, r *op.Run, l api.Location, made *hv.PoolVolume) error {
	var err error
	if l.Format == api.FormatRaw && !made.Block && l.WholeBytes()%image.MaxAlignBytes != 0 {
		err = e.Files.FillFirstBlock(ctx, made.Path)
	}
	var fingerprint string
	if err == nil {
		fingerprint, err = e.Images.Fingerprint(ctx, made.Path)
	}
	if err == nil {
		err = r.Note(ctx, claimNote{Ours: true, Print: fingerprint})
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, e.Pools.DeleteVolume(context.WithoutCancel(ctx), l.Pool, l.Name))
}

// isMade reports whether this op is known to have made the image found in the pool: by the image's
// fingerprint in the journal or, without a fingerprint, by the op id in the pool's record.
func (e *env) isMade(ctx context.Context, opID string, found *hv.PoolVolume, note claimNote) (bool, error) {
	if !note.Ours {
		return false, nil
	}
	if note.Print == "" {
		return found.OpID != "" && found.OpID == opID, nil
	}
	now, err := e.Images.Fingerprint(ctx, found.Path)
	if errors.Is(err, image.ErrAbsent) {
		return false, nil
	}
	return now == note.Print, err
}

func (e *env) takeMade(ctx context.Context, r *op.Run, l api.Location, found *hv.PoolVolume, note claimNote) error {
	mine, err := e.isMade(ctx, r.OpID(), found, note)
	switch {
	case err != nil:
		return err
	case mine && note.Print == "":
		return e.noteMade(ctx, r, l, found)
	case mine:
		return nil
	case note.Ours && note.Print == "":
		return e.notOurs(ctx, r, api.Errorf(api.CodeConflict, "cannot create %s in pool %s: it is there, and whether the try that was cut off has made it cannot be told, so it is neither used nor deleted; look whose it is, delete it with `%s` if it is nobody's, and try again",
			l.Name, l.Pool, shell.Line("virsh", "vol-delete", "--pool", l.Pool, "--", l.Name)))
	}
	return e.notOurs(ctx, r, placeTaken(l))
}

// notOurs records that the op must not delete the image, and returns why.
func (e *env) notOurs(ctx context.Context, r *op.Run, why *api.Error) error {
	if err := r.Note(ctx, claimNote{Ours: false}); err != nil {
		return err
	}
	return why
}

// removeMade deletes the image that the op made, and no other image at its place.
func (e *env) removeMade(ctx context.Context, opID string, in *input, note claimNote) error {
	l := in.Volume.Location
	if mine, err := e.hasPlace(ctx, in, api.VolumeCreating); err != nil || !mine {
		return err
	}
	found, err := e.inPool(ctx, l)
	if err != nil || found == nil {
		return err
	}
	mine, err := e.isMade(ctx, opID, found, note)
	if err != nil {
		return err
	}
	if !mine {
		e.log.Warn("what is at the place of a volume whose creation is undone is not deleted: it is not known to be what was made", "volume", in.Volume.Name, "path", found.Path)
		return nil
	}
	return request.HV(e.Pools.DeleteVolume(ctx, l.Pool, l.Name))
}

func placeTaken(l api.Location) *api.Error {
	return api.Errorf(api.CodeConflict, "pool %s has a volume %s already, which Volferry did not make; choose another name, or take it over with `volferryctl volume adopt`",
		l.Pool, l.Name)
}
