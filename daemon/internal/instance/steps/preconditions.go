// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// verbs has the verb of each op kind, for messages.
var verbs = map[string]string{
	KindStart: "start", KindStop: "stop", KindReboot: "reboot", KindPause: "pause", KindUnpause: "unpause",
}

// CheckPower refuses a start, stop, reboot, pause or unpause that is not possible now. It changes
// nothing. Errors are typed for the runner.
func (e *Env) CheckPower(ctx context.Context, kind string, in *PowerInput, inst api.Instance) error {
	verb := verbs[kind]
	if inst.Locked { // first, as in the registry, which learns the state later
		return locked(verb, inst)
	}
	if inst.State.OnShelf() {
		return forbidden(verb, inst.Name, "it is %s; `%s` brings it back", inst.State, api.ShellLine("volferryctl", "instance", "unshelve", inst.Name))
	}
	dom, err := e.domain(ctx, inst.ID)
	if err != nil {
		return err
	}
	if err := inState(kind, dom, inst.Name, in.Force); err != nil {
		return err
	}
	if kind == KindUnpause {
		return e.notSwitching(&in.Subject, verb)
	}
	if kind != KindStart && kind != KindReboot {
		return nil
	}
	if err := e.MovingGuests.MayStart(ctx, inst.ID); err != nil {
		return refusedFor(verb, inst.Name, err)
	}
	if kind == KindReboot {
		return nil
	}
	if inst.LacksRoot() {
		return NoRoot(verb, inst.Name)
	}
	if err := e.onItsVolumes(ctx, verb, inst, dom); err != nil {
		return err
	}
	return e.notGuarded(ctx, &in.Subject)
}

// onItsVolumes refuses to start a guest on disks that are not its volumes, as after the restore of
// an old definition: those lack the guest's later writes. MayStart checks moving volumes. While the
// registry does not answer, the guest may start unchecked, as without a daemon.
func (e *Env) onItsVolumes(ctx context.Context, verb string, inst api.Instance, dom *hv.Domain) error {
	atts, err := e.restingOf(ctx, inst.ID)
	if err != nil {
		return err
	}
	if what := Differs(dom, atts); what != "" {
		return api.Errorf(api.CodeChainChanged, "cannot %s instance %s: %s. The guest would not start on its volume: `volferryctl volume which` says what each witness has; if the registry is right, `%s` puts the volume's path back into the definition", verb, inst.Name, what, api.ShellLine("volferryctl", "instance", "repair", inst.Name))
	}
	return e.onItsDevices(ctx, verb, inst.Name, atts)
}

// restingOf is atRest, but returns nothing while the registry does not answer.
func (e *Env) restingOf(ctx context.Context, id string) ([]api.Attachment, error) {
	atts, err := e.atRest(ctx, id)
	if request.Away(err) || errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	return atts, err
}

// onItsDevices refuses to start a guest if its volume's path now leads to another device or RBD
// image. QEMU detects other faults. A silent cluster is asked only once.
func (e *Env) onItsDevices(ctx context.Context, verb, name string, atts []api.Attachment) error {
	silent := false
	for _, a := range atts {
		if silent && api.IsNetwork(a.Location.Path) {
			continue
		}
		if err := e.Locations.CheckImages(a.Location); err != nil {
			return image.Prefixed(fmt.Sprintf("cannot %s instance %s: volume %s", verb, name, a.VolumeName), err)
		}
		err := image.CheckDevice(ctx, a.Location, e.Images.Fingerprint)
		if api.CodeOf(err) == api.CodeChainChanged {
			return image.Prefixed(fmt.Sprintf("cannot %s instance %s: volume %s", verb, name, a.VolumeName), err)
		}
		silent = silent || err != nil && api.IsNetwork(a.Location.Path)
	}
	return nil
}

// inState refuses an op if the domain is not in the required state.
func inState(kind string, dom *hv.Domain, name string, force bool) error {
	verb := verbs[kind]
	switch {
	case dom == nil:
		return api.Errorf(api.CodeNotFound, "cannot %s instance %s: it is not defined on this host; `%s` says what is known", verb, name, api.ShellLine("volferryctl", "instance", "show", name))
	case dom.State == hv.StateOther && (kind != KindStop || !force):
		return api.Errorf(api.CodeInstanceBusy, "cannot %s instance %s: %s", verb, name, request.Unsettled(dom))
	case kind == KindStart:
		switch {
		case dom.State == hv.StatePaused:
			return forbidden(verb, name, "it is paused; unpause it instead")
		case dom.State.Active():
			return forbidden(verb, name, "it is %s already", dom.State)
		}
		return request.AtHome("cannot start instance "+name, dom)
	case !dom.State.Active():
		return forbidden(verb, name, "it is stopped")
	case kind == KindStop && dom.State == hv.StatePaused && !force:
		return forbidden(verb, name, "it is paused and cannot answer; unpause it first, or use --force")
	case (kind == KindReboot || kind == KindPause) && dom.State == hv.StatePaused:
		return forbidden(verb, name, "it is paused")
	case kind == KindUnpause && dom.State == hv.StateRunning:
		return forbidden(verb, name, "it is running")
	}
	return nil
}

// notGuarded refuses the start of a guarded instance: the hook may not be installed. A stale guard
// (staleGuard) does not count.
func (e *Env) notGuarded(ctx context.Context, s *Subject) error {
	guards, err := e.Guards.Of(s.InstanceID)
	if err != nil {
		return err
	}
	reasons := make([]string, 0, len(guards))
	for _, held := range guards {
		switch held.Owner {
		case guard.OwnerRoot:
			return NoRoot("start", s.InstanceName)
		case guard.OwnerShelf:
			return forbidden("start", s.InstanceName, "%s", held.Reason)
		}
		left, err := e.staleGuard(ctx, s, held)
		if err != nil {
			return err
		}
		if !left {
			reasons = append(reasons, held.Reason)
		}
	}
	if len(reasons) > 0 {
		return api.Errorf(api.CodeInstanceBusy, "cannot start instance %s: %s", s.InstanceName, strings.Join(reasons, "; "))
	}
	return nil
}

// staleGuard reports whether a guard remains of a move that, according to the registry, does not
// hold the instance any more: this host was fenced, and the move ended since. While the save image
// exists the guard is not stale: the operator must discard the memory.
func (e *Env) staleGuard(ctx context.Context, s *Subject, held guard.Guard) (bool, error) {
	migrationID, ok := strings.CutPrefix(held.Owner, guard.OwnerPause)
	if !ok {
		return false, nil
	}
	inst, found, err := e.row(ctx, s)
	if err != nil || !found || inst.LockedBy == migrationID {
		if request.Away(err) {
			err = nil // unknown
		}
		return false, err
	}
	rest := &PauseInput{Memory: e.SaveImagePath(s.InstanceID, migrationID)}
	there, err := SaveImageExists(rest)
	if err != nil || !there {
		return err == nil, err
	}
	return false, forbidden("start", s.InstanceName, "migration %s has saved its memory in %s, and ended without it while this host was fenced; its disks may have gone on since; to give the memory up, remove that file, and start it again",
		migrationID, rest.Memory)
}

// clearStaleGuards clears the stale guards (staleGuard).
func (e *Env) clearStaleGuards(ctx context.Context, s *Subject) error {
	guards, err := e.Guards.Of(s.InstanceID)
	if err != nil {
		return err
	}
	for _, held := range guards {
		left, err := e.staleGuard(ctx, s, held)
		if err != nil {
			return err
		}
		if !left {
			continue
		}
		if err := e.Guards.Clear(s.InstanceID, held.Owner); err != nil {
			return err
		}
	}
	return nil
}

// notSwitching refuses to touch a guest that a migration has paused.
func (e *Env) notSwitching(s *Subject, verb string) error {
	if !e.MovingGuests.Switching(s.InstanceID) {
		return nil
	}
	return api.Errorf(api.CodeInstanceBusy, "cannot %s instance %s: a migration holds it paused for its switch; `volferryctl migration list` shows which", verb, s.InstanceName)
}
