// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/witness"
	"github.com/volferry/volferry/internal/api"
)

// ChainProblem returns the problem of the instance's chain that forbids a start, nil if there is
// none. inUse: the journal has the guest's newest writes in the overlay. orSrc: they may be in src
// if the definition names src. unsure: they may be in the end of a pivot although the definition
// names the overlay. known is false if the chain cannot be read now.
func (e *Env) ChainProblem(ctx context.Context, s *Spec, inUse, orSrc, unsure bool) (problem *api.ChainProblem, known bool) {
	disk, err := e.confirmDisk(ctx, s)
	var disagreed *errWitnessesDisagree
	switch {
	case errors.As(err, &disagreed):
		return guarded(disagreed.Error()), true
	case errors.Is(err, hv.ErrNotFound):
		return nil, true // there is no domain to start
	case err != nil:
		return nil, false
	}
	if unsure && !disk.active && disk.config == OnOverlay {
		return guarded(mayLack(s)), true
	}
	if !inUse || s.namedBy(disk.dom.ConfigDisk(s.Target)) || orSrc && disk.config == OnSrc {
		// An image above it is another program's snapshot with newer writes (UnderSnapshot). A
		// guest that was saved while the witnesses disagreed would be restored to libvirt's chain.
		guarded, err := e.guards.Has(s.InstanceID, s.ChainOwner())
		return nil, err == nil && (!guarded || !disk.dom.ManagedSave)
	}
	way := fmt.Sprintf("with the instance shut off, `%s` names the overlay again; docs/how-to/recover.md (A definition that was put back) says more", api.ShellLine("volferryctl", "instance", "repair", s.InstanceName))
	if api.IsNetwork(s.Src.Path) {
		way = fmt.Sprintf("if its guest has not run from there since, `%s` names the overlay again, with the instance shut off; docs/how-to/recover.md (A definition that was put back) says more",
			api.ShellLine("volferryctl", "instance", "repair", s.InstanceName, "--source-unwritten"))
	}
	return guarded(fmt.Sprintf("the definition of instance %s was changed by somebody else: for disk %s it names %s, and what the guest of volume %s wrote since migration %s began is in %s over %s; "+
		"do not start it from there: %s",
		s.InstanceName, s.Target, s.place(disk.config), s.VolumeName, s.MigrationID, s.Overlay, s.Src.Path, way)), true
}

func guarded(message string) *api.ChainProblem {
	return &api.ChainProblem{Message: message, Guarded: true}
}

// UnderSnapshot returns the problem of an image that another program has put over the guest's
// image, nil if there is none. The next start of the instance has that image. known is false if the
// chain cannot be read now, or libvirt and the kernel disagree about it.
func (e *Env) UnderSnapshot(ctx context.Context, s *Spec) (problem *api.ChainProblem, known bool) {
	disk, err := e.readDisk(ctx, s)
	switch {
	case errors.Is(err, hv.ErrNotFound):
		return nil, true
	case err != nil:
		return nil, false
	}
	now := disk.dom.ConfigDisk(s.Target)
	if disk.active {
		now = disk.dom.LiveDisk(s.Target)
	}
	if !s.under(now) {
		return nil, true
	}
	advice := fmt.Sprintf("its definition has %s over %s: start it, and the commands that merge that are shown", now.Top().Path, now.Chain[s.ours(now.Chain)].Path)
	if disk.active {
		open, err := witness.Look(ctx, e.hv, s.InstanceID, s.InstanceName, now.Top().Path)
		if err != nil || !open.Open {
			return nil, false
		}
		advice = snapshotAdvice(s, disk)
	}
	return &api.ChainProblem{
		Message: fmt.Sprintf("disk %s of instance %s was changed by somebody else while volume %s moves: %s; until then the move can be neither completed nor cancelled (docs/how-to/recover.md, %s)",
			s.Target, s.InstanceName, s.VolumeName, advice, snapshotSection),
		Cure: strings.Join(foldCommands(s, disk), api.CureSeparator),
	}, true
}

// mayLack describes why an instance does not start that went off in a switch, on an unknown side of
// it.
func mayLack(s *Spec) string {
	return fmt.Sprintf("instance %s went off while its disk was switched, and the overlay that its definition names may lack what its guest wrote last: do not start it before complete or cancel of migration %s, called once more, has looked",
		s.InstanceName, s.MigrationID)
}

// WitnessesDisagree describes the views of libvirt and the kernel if they cannot both be right.
// Otherwise, and if they are unknown now, it returns "".
func (e *Env) WitnessesDisagree(ctx context.Context, s *Spec) string {
	_, err := e.confirmDisk(ctx, s)
	var disagreed *errWitnessesDisagree
	if errors.As(err, &disagreed) {
		return disagreed.Error()
	}
	return ""
}

// namedBy reports whether a disk has the overlay in its chain. The disk may be nil.
func (s *Spec) namedBy(d *hv.Disk) bool {
	return d != nil && slices.ContainsFunc(d.Chain, func(img hv.Image) bool { return img.Path == s.Overlay })
}

// Misnamed reports whether the definition of an instance that is off lacks the overlay, which has
// the newest writes. Its errors are typed for the runner. It is an error if src was written since,
// so that the overlay does not match it, or if src is at an address and srcUnwritten does not state
// the opposite.
func (e *Env) Misnamed(ctx context.Context, s *Spec, srcUnwritten bool) (bool, error) {
	disk, err := e.confirmDisk(ctx, s)
	if err != nil || s.namedBy(disk.dom.ConfigDisk(s.Target)) {
		return false, err
	}
	if api.IsNetwork(s.Src.Path) && srcUnwritten {
		if disk.config != OnSrc { // srcUnwritten is only about src
			return true, chainChanged(s, disk)
		}
		return true, nil
	}
	if api.IsNetwork(s.Src.Path) {
		return true, api.Errorf(api.CodeChainChanged,
			"the definition of instance %s names %s, and not the overlay %s of migration %s; nobody can tell whether the guest has run from there since, as %s keeps no record of writes; if you are sure that it has not, `%s` names the overlay; docs/how-to/recover.md (A definition that was put back) says more",
			s.InstanceName, s.place(disk.config), s.Overlay, s.MigrationID, api.AddressKind(s.Src.Path), api.ShellLine("volferryctl", "instance", "repair", s.InstanceName, "--source-unwritten"))
	}
	return true, e.sealed(ctx, s, "")
}

// Watched reports whether the migration has made the chain of the instance, or a job on its disk.
func (s *Spec) Watched() bool { return s.Method == MethodOverlay || s.Method == MethodMirror }

// ChainOwner returns the owner of the guard that the watch sets.
func (s *Spec) ChainOwner() string { return "chain " + s.MigrationID }
