// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/daemon/internal/witness"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/op"
)

// KindDeleteSource deletes the src that a migration has left. It is no op of the migration,
// which is over.
const KindDeleteSource = "migration_delete_source"

// ReleasedInput is the Input of an op that deletes a released src.
type ReleasedInput struct {
	Spec Spec `json:"spec"`
	// Seal is the stamp of src when it was frozen or, if it was not, when nobody had it any more;
	// nil if there is none. EndedAt is when the migration ended.
	Seal    *image.Stamp `json:"seal,omitempty"`
	EndedAt time.Time    `json:"ended_at"`
	// Force: src is deleted too if nobody can tell whether it was written.
	Force bool `json:"force,omitempty"`
	request.Body
}

// Keys implements request.Input.
func (in *ReleasedInput) Keys() []string { return []string{request.VolumeKey(in.Spec.VolumeID)} }

// Group implements request.Input: the op belongs to no other.
func (in *ReleasedInput) Group() string { return "" }

func (in *ReleasedInput) cannot(code api.Code, format string, args ...any) *api.Error {
	return api.Errorf(code, "cannot delete %s, which migration %s has left: "+format, append([]any{in.Spec.Src.Path, in.Spec.MigrationID}, args...)...)
}

// releasedPlan is the plan of KindDeleteSource.
func (e *Env) releasedPlan() op.Plan {
	do := func(ctx context.Context, r *op.Run, in *ReleasedInput) error {
		// As it belongs to nobody, anybody may take it until it is gone.
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

// deletionNote says that the deletion was tried.
type deletionNote struct {
	Tried bool `json:"tried"`
}

// observeReleased reports whether src is deleted. In a pool that was stopped or undefined nothing
// need be at its path although it is there.
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

// again is the command that goes on with a deletion that waits for an operator.
func (in *ReleasedInput) again() string {
	return api.ShellLine("volferryctl", "migration", "delete-source", in.Spec.MigrationID, "--yes")
}

// releasedError is hvError for a step whose outcome is always seen: what is not found is no riddle.
func (e *Env) releasedError(err error) error {
	if errors.Is(err, hv.ErrNotFound) {
		return err
	}
	return e.hvError(err)
}

func (e *Env) removeReleased(ctx context.Context, in *ReleasedInput) error {
	src := in.Spec.Src
	if src.Pool != "" {
		err := e.hv.DeleteVolume(ctx, src.Pool, src.Name)
		if errors.Is(err, hv.ErrNotFound) { // the pool, which was there a moment ago
			err = cmp.Or(e.checkReleasedPool(ctx, in), err)
		}
		return e.releasedError(err)
	}
	// The bytes are to go, not a link to them.
	real, err := e.images.RealPath(src.Path)
	switch {
	case errors.Is(err, image.ErrAbsent):
	case err != nil:
		return e.releasedError(err)
	}
	return e.hvError(e.images.Remove(ctx, real))
}

// CheckReleased refuses a src that is not the released src of its migration any more, or that
// somebody uses, or that was written since. It changes nothing, and its errors are typed for
// the runner.
func (e *Env) CheckReleased(ctx context.Context, in *ReleasedInput) error {
	if err := e.checkReleasedIdentity(ctx, in); err != nil {
		return err
	}
	look, err := e.claims.Look(ctx)
	if err != nil {
		return e.releasedError(e.registryError(err))
	}
	path := in.Spec.Src.Path
	holder, err := look.Holder(path, location.Self{})
	switch {
	case err != nil:
		return in.cannot(api.CodeStateForbidden, "%v", err)
	case holder.Words != "":
		return in.cannot(api.CodeVolumeInUse, "it %s", holder.Words)
	}
	user, err := e.userOf(ctx, path)
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
		return in.cannot(api.CodeVolumeInUse, "some process has it open for writing; `%s` says which, unless it is on another host", api.ShellLine("fuser", "-v", "--", path))
	}
	if err := e.checkNotOpen(ctx, in); err != nil {
		return err
	}
	// Last, since who has it now is to be sent away before anybody compares.
	return e.checkReleasedContent(ctx, in)
}

// checkReleasedIdentity refuses another image than the one that was moved.
func (e *Env) checkReleasedIdentity(ctx context.Context, in *ReleasedInput) error {
	s := &in.Spec
	if s.SrcPrint == "" {
		return in.cannot(api.CodeStateForbidden, "an older version has moved the volume, and nobody can tell whether this is still the image that it has left; look, and remove it yourself")
	}
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
	same, err := e.isSource(ctx, s)
	switch {
	case err != nil:
		return e.releasedError(err)
	case !same:
		return in.cannot(api.CodeChainChanged, "something else is at its place by now (%s), which is not touched", now)
	case api.IsNetwork(s.Src.Path):
		return in.cannot(api.CodeUnsupportedDisk, "it is %s, which is removed where it was made", api.AddressKind(s.Src.Path))
	case s.SrcBlock && s.Src.Pool == "":
		return in.cannot(api.CodeUnsupportedDisk, "it is a block device in no pool, which is removed where it was made")
	case s.Src.Pool == "":
		return e.images.MayWrite(s.Src.Path)
	}
	return nil
}

// checkReleasedPool refuses a src in a pool that cannot be used now: it says nothing of what it
// holds, and deletes nothing.
func (e *Env) checkReleasedPool(ctx context.Context, in *ReleasedInput) error {
	name := in.Spec.Src.Pool
	if name == "" {
		return nil
	}
	pools, err := e.hv.Pools(ctx)
	if err != nil {
		return e.hvError(err)
	}
	pool, err := location.Pool(pools, name)
	switch {
	case err == nil && pool.NoCreate:
		return in.cannot(api.CodeStateForbidden, "pool %s deletes no volumes: its target makes and removes them", name)
	case err == nil:
		return nil
	case pool.Name == "":
		return in.cannot(api.CodeStateForbidden, "there is no pool %s on this host any more; define it again and start it (`%s`), or remove the image yourself", name, startPoolCommand(name))
	case pool.Type == hv.ConnectorPool || pool.Active:
		return in.cannot(api.CodeStateForbidden, "%v", err)
	}
	return cured(in.cannot(api.CodeStateForbidden, "pool %s is not active; start it first (`%s`)", name, startPoolCommand(name)), startPoolCommand(name), in.again())
}

// checkReleasedContent refuses a src that was written since the volume left it: a guest that was
// started on it may have put there what the volume lacks. One of which nobody can tell is deleted
// if the caller insists.
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

// ReleasedChange reports whether a released src was written since the volume left it. Why is the
// reason if nobody can tell. The time of the move's end is no proof: it is by another clock than
// that of the file.
func (e *Env) ReleasedChange(ctx context.Context, in *ReleasedInput) (change image.Change, why string, err error) {
	return e.changeSinceLeft(ctx, &in.Spec, in.Seal)
}

// checkNotOpen refuses a src that the process of a domain has open, whatever libvirt says.
func (e *Env) checkNotOpen(ctx context.Context, in *ReleasedInput) error {
	doms, err := e.hv.Domains(ctx)
	if err != nil {
		return e.releasedError(err)
	}
	for i := range doms {
		held, err := witness.Look(ctx, e.hv, doms[i].ID, doms[i].Name, in.Spec.Src.Path)
		if err != nil {
			return err
		}
		if held.Open {
			return in.cannot(api.CodeVolumeInUse, "the process of instance %s has it open", doms[i].Name)
		}
	}
	return nil
}
