// SPDX-License-Identifier: Apache-2.0

package place

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/daemon/internal/witness"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// KindDeleteSource is the op that deletes the src that an ended migration has left.
const KindDeleteSource = "migration_delete_source"

// ReleasedInput is the Input of a KindDeleteSource.
type ReleasedInput struct {
	Spec move.Spec `json:"spec"`
	// Seal is the stamp of src from its freeze or, without a freeze, from when no process had src
	// open any more; nil if there is none. EndedAt is when the migration ended.
	Seal    *image.Stamp `json:"seal,omitempty"`
	EndedAt time.Time    `json:"ended_at"`
	// Force: delete src even if it may have been written.
	Force bool `json:"force,omitempty"`
	request.Body
}

// Keys implements request.Input.
func (in *ReleasedInput) Keys() []string { return []string{request.VolumeKey(in.Spec.VolumeID)} }

// Group implements request.Input: the op has no group.
func (in *ReleasedInput) Group() string { return "" }

func (in *ReleasedInput) cannot(code api.Code, format string, args ...any) *api.Error {
	return api.Errorf(code, "cannot delete %s, which migration %s has left: "+format, append([]any{in.Spec.Src.Path, in.Spec.MigrationID}, args...)...)
}

// ReleasedPlan is the plan of KindDeleteSource.
func (e *Env) ReleasedPlan() op.Plan {
	do := func(ctx context.Context, r *op.Run, in *ReleasedInput) error {
		// src belongs to no volume, so another request could take it before it is deleted.
		return e.claims.Exclusive(func() error {
			if err := e.CheckReleased(ctx, in); err != nil {
				return err
			}
			if err := r.Note(ctx, deletionNote{true}); err != nil {
				return err
			}
			return e.removeReleased(ctx, in)
		})
	}
	return op.Plan{Kind: KindDeleteSource, Steps: []op.Step{
		op.StepOf(op.InputOf[ReleasedInput], deleteSourceStep, do, nil, e.observeReleased),
	}}
}

const deleteSourceStep = "delete_source"

type deletionNote struct {
	Tried bool `json:"tried"`
}

// observeReleased reports whether src is deleted. In a stopped or undefined pool an image may
// exist without a path.
func (e *Env) observeReleased(ctx context.Context, r *op.Run, in *ReleasedInput) (op.Observation, error) {
	_, err := e.images.Fingerprint(ctx, in.Spec.Src.Path)
	if !errors.Is(err, image.ErrAbsent) {
		return op.NotDone, err
	}
	err = e.checkReleasedPool(ctx, in)
	refused, ok := errors.AsType[*api.Error](err)
	if !ok {
		return op.Done, err
	}
	var note deletionNote
	if _, err := r.Noted(deleteSourceStep, &note); err != nil || !note.Tried {
		return op.NotDone, err
	}
	return op.Unknown, op.UnknownOutcome(refused)
}

func (in *ReleasedInput) again() string {
	return shell.Line("volferryctl", "migration", "delete-source", in.Spec.MigrationID, "--yes")
}

// releasedError is HVError, but returns hv.ErrNotFound unchanged: observeReleased can see the
// step's outcome.
func (e *Env) releasedError(err error) error {
	if errors.Is(err, hv.ErrNotFound) {
		return err
	}
	return e.move.HVError(err)
}

func (e *Env) removeReleased(ctx context.Context, in *ReleasedInput) error {
	src := in.Spec.Src
	if src.Pool != "" {
		err := e.pools.DeleteVolume(ctx, src.Pool, src.Name)
		if errors.Is(err, hv.ErrNotFound) {
			err = cmp.Or(e.checkReleasedPool(ctx, in), err)
		}
		return e.releasedError(err)
	}
	// Delete the image, not a link.
	real, err := e.images.RealPath(src.Path)
	switch {
	case errors.Is(err, image.ErrAbsent):
	case err != nil:
		return e.releasedError(err)
	}
	return e.move.HVError(e.remover.Remove(ctx, real))
}

// CheckReleased refuses a src that is not the released src of its migration, is in use, or was
// written since. It changes nothing, and its errors are typed for the runner.
func (e *Env) CheckReleased(ctx context.Context, in *ReleasedInput) error {
	if err := e.checkReleasedIdentity(ctx, in); err != nil {
		return err
	}
	look, err := e.claims.Look(ctx)
	if err != nil {
		return e.releasedError(e.move.RegistryError(err))
	}
	path := in.Spec.Src.Path
	holder, err := look.Holder(path, location.Self{})
	switch {
	case err != nil:
		return in.cannot(api.CodeStateForbidden, "%v", err)
	case holder.Words != "":
		return in.cannot(api.CodeVolumeInUse, "it %s", holder.Words)
	}
	user, err := e.look.UserOf(ctx, path)
	switch {
	case err != nil:
		return e.releasedError(err)
	case user != "":
		return in.cannot(api.CodeVolumeInUse, "it %s", user)
	}
	written, err := e.images.Written(ctx, path)
	switch {
	case err != nil:
		return fmt.Errorf("see who writes to %s: %w", path, err)
	case written:
		return in.cannot(api.CodeVolumeInUse, "some process has it open for writing; `%s` says which, unless it is on another host", shell.Line("fuser", "-v", "--", path))
	}
	if err := e.checkNotOpen(ctx, in); err != nil {
		return err
	}
	// This comes last: a present user must be found before anything is compared.
	return e.checkReleasedContent(ctx, in)
}

func (e *Env) checkReleasedIdentity(ctx context.Context, in *ReleasedInput) error {
	s := &in.Spec
	if err := e.checkReleasedPool(ctx, in); err != nil {
		return err
	}
	now, err := e.images.Fingerprint(ctx, s.Src.Path)
	switch {
	case errors.Is(err, image.ErrAbsent):
		return in.cannot(api.CodeNotFound, "there is nothing any more")
	case err != nil:
		return err
	}
	same, err := e.seal.IsSource(ctx, s)
	kind := s.SrcKind()
	switch {
	case err != nil:
		return e.releasedError(err)
	case !same:
		return in.cannot(api.CodeChainChanged, "something else is at its place by now (%s), which is not touched", now)
	case !kind.Deletable:
		return in.cannot(api.CodeUnsupportedDisk, "it is %s, which is removed where it was made", kind.Name)
	case !kind.Filesystem && s.Src.Pool == "":
		return in.cannot(api.CodeUnsupportedDisk, "it is %s in no pool, which is removed where it was made", kind.Name)
	case s.Src.Pool == "":
		return e.remover.MayWrite(s.Src.Path)
	}
	return nil
}

// checkReleasedPool refuses a src in a pool that cannot be used now: the pool neither lists nor
// deletes its volumes.
func (e *Env) checkReleasedPool(ctx context.Context, in *ReleasedInput) error {
	name := in.Spec.Src.Pool
	if name == "" {
		return nil
	}
	pools, err := e.pools.Pools(ctx)
	if err != nil {
		return e.move.HVError(err)
	}
	pool, err := location.Pool(pools, name)
	switch {
	case err == nil && pool.NoCreate:
		return in.cannot(api.CodeStateForbidden, "pool %s deletes no volumes: its target makes and removes them", name)
	case err == nil:
		return nil
	case pool.Name == "":
		return in.cannot(api.CodeStateForbidden, "there is no pool %s on this host any more; define it again and start it (`%s`), or remove the image yourself", name, move.StartPoolCommand(name))
	case pool.Type == hv.ConnectorPool || pool.Active:
		return in.cannot(api.CodeStateForbidden, "%v", err)
	}
	return move.Cured(in.cannot(api.CodeStateForbidden, "pool %s is not active; start it first (`%s`)", name, move.StartPoolCommand(name)), move.StartPoolCommand(name), in.again())
}

// checkReleasedContent refuses a src that was written since the volume left it: only src may have
// the guest's writes. If this is unknown, it refuses unless Force is set.
func (e *Env) checkReleasedContent(ctx context.Context, in *ReleasedInput) error {
	change, why, err := e.ReleasedChange(ctx, in)
	switch {
	case err != nil || change == image.Unchanged || change == image.ChangeUnknown && in.Force:
		return err
	case change == image.Changed:
		return in.cannot(api.CodeChainChanged, "it was written since volume %s has left it, by a guest that was started on it perhaps, and may have what the volume lacks; remove it yourself, but only after you have compared it with the volume", in.Spec.VolumeName)
	}
	return in.cannot(api.CodeChainChanged, "nobody can tell whether it was written since volume %s has left it (%s), so it may have what the volume lacks; compare it with the volume, or give --force if no guest and no program has written to it", in.Spec.VolumeName, why).
		With(api.DetailWrittenUnknown, in.Spec.Src.Path)
}

// ReleasedChange returns whether a released src was written since the volume left it. why is the
// reason for an unknown change. The end time of the move is no evidence: the file's time is from
// another clock.
func (e *Env) ReleasedChange(ctx context.Context, in *ReleasedInput) (change image.Change, why string, err error) {
	return e.seal.ChangeSinceLeft(ctx, &in.Spec, in.Seal)
}

// checkNotOpen refuses a src that a domain's process has open, whatever libvirt reports.
func (e *Env) checkNotOpen(ctx context.Context, in *ReleasedInput) error {
	doms, err := e.domains.Domains(ctx)
	if err != nil {
		return e.releasedError(err)
	}
	for i := range doms {
		held, err := witness.Look(ctx, e.domains, doms[i].ID, doms[i].Name, in.Spec.Src.Path)
		if err != nil {
			return err
		}
		if held.Open {
			return in.cannot(api.CodeVolumeInUse, "the process of instance %s has it open", doms[i].Name)
		}
	}
	return nil
}
