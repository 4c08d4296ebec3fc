// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/look"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/witness"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// ChainProblem returns the problem of the chain that forbids a start of the instance, or nil.
// inUse: by the journal the overlay has the guest's newest writes. orSrc: src may have them if the
// definition names src. unsure: the image after a pivot may have them although the definition
// names the overlay. known is false if the chain cannot be read now.
func (e *Env) ChainProblem(ctx context.Context, s *move.Spec, inUse, orSrc, unsure bool) (problem *api.ChainProblem, known bool) {
	disk, err := e.look.ConfirmDisk(ctx, s)
	var disagreed *look.WitnessesDisagreeError
	switch {
	case errors.As(err, &disagreed):
		return guarded(disagreed.Error()), true
	case errors.Is(err, hv.ErrNotFound):
		return nil, true // there is no domain to start
	case err != nil:
		return nil, false
	}
	if unsure && !disk.Active && disk.Config == move.OnOverlay {
		return guarded(mayLack(s)), true
	}
	if !inUse || namedBy(s, disk.Dom.ConfigDisk(s.Target)) || orSrc && disk.Config == move.OnSrc {
		// An image over the overlay is another program's snapshot with newer writes
		// (UnderSnapshot). A guest that was saved while libvirt and the kernel disagreed would be
		// restored to libvirt's chain.
		guarded, err := e.guards.Has(s.InstanceID, ChainOwner(s))
		return nil, err == nil && (!guarded || !disk.Dom.ManagedSave)
	}
	way := fmt.Sprintf("with the instance shut off, `%s` names the overlay again; docs/how-to/recover.md (A definition that was put back) says more", shell.Line("volferryctl", "instance", "repair", s.InstanceName))
	if !s.SrcKind().Witnessed {
		way = fmt.Sprintf("if its guest has not run from there since, `%s` names the overlay again, with the instance shut off; docs/how-to/recover.md (A definition that was put back) says more",
			shell.Line("volferryctl", "instance", "repair", s.InstanceName, "--source-unwritten"))
	}
	return guarded(fmt.Sprintf("the definition of instance %s was changed by somebody else: for disk %s it names %s, and what the guest of volume %s wrote since migration %s began is in %s over %s; "+
		"do not start it from there: %s",
		s.InstanceName, s.Target, s.Place(disk.Config), s.VolumeName, s.MigrationID, s.Overlay, s.Src.Path, way)), true
}

func guarded(message string) *api.ChainProblem {
	return &api.ChainProblem{Message: message, Guarded: true}
}

// UnderSnapshot returns a problem if another program has put an image (a snapshot) over the
// guest's image, so that the instance runs on or starts with that snapshot. Otherwise the problem
// is nil. known is false if the chain cannot be read now, or if libvirt and the kernel contradict
// each other about it.
func (e *Env) UnderSnapshot(ctx context.Context, s *move.Spec) (problem *api.ChainProblem, known bool) {
	disk, err := e.move.ReadDisk(ctx, s)
	switch {
	case errors.Is(err, hv.ErrNotFound):
		return nil, true
	case err != nil:
		return nil, false
	}
	now := disk.Dom.ConfigDisk(s.Target)
	if disk.Active {
		now = disk.Dom.LiveDisk(s.Target)
	}
	if !look.Under(s, now) {
		return nil, true
	}
	advice := fmt.Sprintf("its definition has %s over %s: start it, and the commands that merge that are shown", now.Top().Path, now.Chain[look.Ours(s, now.Chain)].Path)
	if disk.Active {
		open, err := witness.Look(ctx, e.hv, s.InstanceID, s.InstanceName, now.Top().Path)
		if err != nil || !open.Open {
			return nil, false
		}
		advice = look.SnapshotAdvice(s, disk)
	}
	return &api.ChainProblem{
		Message: fmt.Sprintf("disk %s of instance %s was changed by somebody else while volume %s moves: %s; until then the move can be neither completed nor cancelled (docs/how-to/recover.md, %s)",
			s.Target, s.InstanceName, s.VolumeName, advice, look.SnapshotSection),
		Cure: strings.Join(look.FoldCommands(s, disk), api.CureSeparator),
	}, true
}

func mayLack(s *move.Spec) string {
	return fmt.Sprintf("instance %s went off while its disk was switched, and the overlay that its definition names may lack what its guest wrote last: do not start it before complete or cancel of migration %s, called once more, has looked",
		s.InstanceName, s.MigrationID)
}

// WitnessesDisagree describes the views of libvirt and the kernel if they contradict each other.
// If they agree or are unknown, it returns "".
func (e *Env) WitnessesDisagree(ctx context.Context, s *move.Spec) string {
	_, err := e.look.ConfirmDisk(ctx, s)
	var disagreed *look.WitnessesDisagreeError
	if errors.As(err, &disagreed) {
		return disagreed.Error()
	}
	return ""
}

func namedBy(s *move.Spec, d *hv.Disk) bool {
	return d != nil && slices.ContainsFunc(d.Chain, func(img hv.Image) bool { return img.Path == s.Overlay })
}

// Misnamed reports whether the definition of an instance that is off lacks the overlay, which has
// the newest writes. It returns an error, typed for the runner, if src may have been written
// since, so that the overlay does not match src. Whether an NBD or RBD src was written is unknown,
// unless srcUnwritten states that it was not.
func (e *Env) Misnamed(ctx context.Context, s *move.Spec, srcUnwritten bool) (bool, error) {
	disk, err := e.look.ConfirmDisk(ctx, s)
	if err != nil || namedBy(s, disk.Dom.ConfigDisk(s.Target)) {
		return false, err
	}
	kind := s.SrcKind()
	switch {
	case kind.Witnessed:
		return true, e.seal.Sealed(ctx, s, "")
	case !srcUnwritten:
		return true, api.Errorf(api.CodeChainChanged,
			"the definition of instance %s names %s, and not the overlay %s of migration %s; nobody can tell whether the guest has run from there since, as %s keeps no record of writes; if you are sure that it has not, `%s` names the overlay; docs/how-to/recover.md (A definition that was put back) says more",
			s.InstanceName, s.Place(disk.Config), s.Overlay, s.MigrationID, kind.Name, shell.Line("volferryctl", "instance", "repair", s.InstanceName, "--source-unwritten"))
	case disk.Config != move.OnSrc: // srcUnwritten is only about src
		return true, look.ChainChanged(s, disk)
	}
	return true, nil
}

// Watched reports whether the migration puts an overlay or a block job on the instance's disk.
func Watched(s *move.Spec) bool {
	return s.Method == move.MethodOverlay || s.Method == move.MethodMirror
}

// ChainOwner returns the owner of the guards that prevent starts because of a ChainProblem.
func ChainOwner(s *move.Spec) string { return "chain " + s.MigrationID }
