// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"io/fs"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/internal/api"
)

// claimNote is written before dst is made: what is at its path afterwards is
// ours to remove.
type claimNote struct {
	Ours bool `json:"ours"`
	// Free: a dst that was there already is nobody's.
	Free bool `json:"free,omitempty"`
}

// stepCreateDestination makes dst, in a pool or at a path, unless the operator
// named an image that exists.
func (m *machine) stepCreateDestination() op.Step {
	const name = "create_destination"
	do := func(ctx context.Context, r *op.Run, s *Spec) error {
		// Once more, now that dst is reserved: somebody may have taken it meanwhile,
		// by a name of which the registry knows nothing.
		if err := m.free(ctx, s.Dst.Path, location.Self{MigrationID: s.MigrationID}); err != nil {
			return m.hvError(m.registryError(err))
		}
		if !s.CreateDst {
			return r.Note(ctx, claimNote{Free: true})
		}
		var note claimNote
		again, err := r.Noted(name, &note)
		if err != nil {
			return err
		}
		if !again {
			if err := r.Note(ctx, claimNote{Ours: true}); err != nil {
				return err
			}
		}
		err = m.createDestination(ctx, s)
		if errors.Is(err, fs.ErrExist) || errors.Is(err, hv.ErrExists) {
			if again {
				return nil // from the try that was cut off; observed next
			}
			if err := r.Note(ctx, claimNote{Ours: false}); err != nil {
				return err
			}
			return api.Errorf(api.CodeDstInUse, "cannot create %s: something is there already", s.Dst.Path)
		}
		return m.hvError(err)
	}
	undo := func(ctx context.Context, r *op.Run, s *Spec) error {
		var note claimNote
		if _, err := r.Noted(name, &note); err != nil || !note.Ours {
			return err
		}
		return m.removeDestination(ctx, s)
	}
	observe := func(ctx context.Context, r *op.Run, s *Spec) (op.Observation, error) {
		var note claimNote
		if ok, err := r.Noted(name, &note); err != nil || !ok || note.Ours != s.CreateDst {
			return op.NotDone, err
		}
		return m.observeDestination(ctx, s)
	}
	return step(name, do, undo, observe)
}

// observeDestination says whether dst exists with the right size.
func (m *machine) observeDestination(ctx context.Context, s *Spec) (op.Observation, error) {
	info, err := m.images.Inspect(ctx, s.Dst.Path, s.Dst.Format)
	if errors.Is(err, image.ErrAbsent) {
		return op.NotDone, nil
	}
	if err != nil {
		return op.Unknown, err
	}
	return op.DoneIf(info.SizeBytes == s.sizeBytes() && info.Block == s.DstBlock), nil
}

func (m *machine) createDestination(ctx context.Context, s *Spec) error {
	if s.Dst.Pool == "" {
		return m.images.Create(ctx, s.dstImage(), s.sizeBytes())
	}
	vol, err := m.hv.CreateVolume(ctx, s.Dst.Pool, s.Dst.Name, string(s.Dst.Format), s.sizeBytes())
	if err != nil {
		return err
	}
	if vol.Path != s.Dst.Path {
		return api.Errorf(api.CodeInternal, "pool %s made %s where %s was reserved", s.Dst.Pool, vol.Path, s.Dst.Path)
	}
	return nil
}

// removeDestination deletes a dst that the migration made. It refuses while
// the disk is on it.
func (m *machine) removeDestination(ctx context.Context, s *Spec) error {
	if s.attached() {
		v, err := m.sure(ctx, s)
		if err != nil {
			return err
		}
		if v.config == onDst || v.live == onDst || v.mirror != nil {
			return op.UnknownOutcome(changed(s, v))
		}
	}
	if err := m.notNamed(ctx, s.Dst.Path); err != nil {
		return err
	}
	if s.Dst.Pool != "" {
		return m.hvError(m.hv.DeleteVolume(ctx, s.Dst.Pool, s.Dst.Name))
	}
	return m.images.Remove(ctx, s.Dst.Path)
}

// notNamed makes sure, before an image is deleted, that no domain of this host
// has it in a chain, and no process of one open.
func (m *machine) notNamed(ctx context.Context, path string) error {
	doms, err := m.hv.Domains(ctx)
	if err != nil {
		return m.hvError(err)
	}
	domain, target, err := location.DiskOf(doms, path)
	switch {
	case err != nil:
		return op.UnknownOutcome(cannotTell(path, err))
	case domain != "":
		return op.UnknownOutcome(api.Errorf(api.CodeDstInUse, "%s was to be deleted, but disk %s of instance %s uses it", path, target, domain))
	}
	return m.notHeld(ctx, doms, path)
}

// stepRemoveDestination ends a cancelled migration: a dst that it made is of no
// use any more.
func (m *machine) stepRemoveDestination() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *Spec) error {
		if !s.CreateDst {
			return nil
		}
		return m.removeDestination(ctx, s)
	}
	observe := func(ctx context.Context, _ *op.Run, s *Spec) (op.Observation, error) {
		if !s.CreateDst {
			return op.Done, nil
		}
		_, err := m.images.Inspect(ctx, s.Dst.Path, s.Dst.Format)
		return op.DoneIf(errors.Is(err, image.ErrAbsent)), nil
	}
	return step("remove_destination", do, nil, observe)
}

// stepReleaseSource ends a completed migration: src is the operator's again, or
// is deleted if that was asked for and the copy was read back.
func (m *machine) stepReleaseSource() op.Step {
	do := func(ctx context.Context, _ *op.Run, s *Spec) error {
		if err := m.copier.Forget(ctx, s.copyKey()); err != nil || !mayDeleteSource(s) {
			return err
		}
		if s.attached() {
			v, err := m.sure(ctx, s)
			if err != nil {
				return err
			}
			if v.config != onDst || (v.active && v.live != onDst) {
				return op.UnknownOutcome(changed(s, v))
			}
		}
		if err := m.notNamed(ctx, s.Src.Path); err != nil {
			return err
		}
		return m.deleteSource(ctx, s)
	}
	return step("release_source", do, nil, nil)
}

// deleteSource deletes src, unless what is at its place is not src any more, or has
// become somebody else's: the registry has given the place back before.
func (m *machine) deleteSource(ctx context.Context, s *Spec) error {
	self := location.Self{MigrationID: s.MigrationID}
	holder, err := m.claims.Take(ctx, s.Src.Path, self, func() error {
		is, err := m.isSource(ctx, s)
		if err != nil {
			return err
		}
		if !is {
			m.log.Warn("src is not deleted: something else is at its place by now", "migration", s.MigrationID, "path", s.Src.Path)
			return nil
		}
		if s.Src.Pool != "" {
			return m.hv.DeleteVolume(ctx, s.Src.Pool, s.Src.Name)
		}
		return m.images.Remove(ctx, s.Src.Path)
	})
	if errors.Is(err, location.ErrCannotTell) {
		return op.UnknownOutcome(cannotTell(s.Src.Path, err))
	}
	if err == nil && holder.Words != "" {
		m.log.Warn("src is not deleted: somebody else has it by now", "migration", s.MigrationID, "path", s.Src.Path, "it", holder.Words)
	}
	return m.hvError(m.registryError(err))
}

// isSource says whether what is at the place of src is the image that was moved. Where
// nothing is left there is nothing that could be another one.
func (m *machine) isSource(ctx context.Context, s *Spec) (bool, error) {
	if s.SrcPrint != "" {
		now, err := m.images.Fingerprint(ctx, s.Src.Path)
		if errors.Is(err, image.ErrAbsent) {
			return true, nil
		}
		if err != nil || now != s.SrcPrint {
			return false, err
		}
	}
	if s.Src.Pool == "" {
		return true, nil
	}
	found, err := m.hv.LookupVolume(ctx, s.Src.Pool, s.Src.Name)
	if errors.Is(err, hv.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return location.SameImage(found.Path, s.Src.Path)
}

// mayDeleteSource: preflight refuses --delete-source without verification, and
// complete does not get here without a verified copy then.
func mayDeleteSource(s *Spec) bool {
	return s.DeleteSource && s.Verify == VerifyFull
}
