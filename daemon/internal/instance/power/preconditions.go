// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"strings"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/memory"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

var verbs = map[string]string{
	subject.KindStart: "start", subject.KindStop: "stop", subject.KindReboot: "reboot", subject.KindPause: "pause", subject.KindUnpause: "unpause",
}

// CheckPower refuses a start, stop, reboot, pause or unpause that is impossible now. It changes
// nothing. Errors are typed for the runner.
func (e *Env) CheckPower(ctx context.Context, kind string, in *subject.PowerInput, inst api.Instance) error {
	verb := verbs[kind]
	if inst.Locked { // first, as in the registry, which learns the state later
		return subject.Locked(verb, inst)
	}
	if inst.State.OnShelf() {
		return subject.Forbidden(verb, inst.Name, "it is %s; `%s` brings it back", inst.State, shell.Line("volferryctl", "instance", "unshelve", inst.Name))
	}
	dom, err := e.subject.Domain(ctx, inst.ID)
	if err != nil {
		return err
	}
	if err := inState(kind, dom, inst.Name, in.Force); err != nil {
		return err
	}
	if kind == subject.KindUnpause {
		return e.notSwitching(&in.Subject, verb)
	}
	if kind != subject.KindStart && kind != subject.KindReboot {
		return nil
	}
	if err := e.movingGuests.MayStart(ctx, inst.ID); err != nil {
		return subject.RefusedFor(verb, inst.Name, err)
	}
	if kind == subject.KindReboot {
		return nil
	}
	if inst.LacksRoot() {
		return subject.NoRoot(verb, inst.Name)
	}
	if err := e.onItsVolumes(ctx, verb, inst, dom); err != nil {
		return err
	}
	return e.notGuarded(ctx, &in.Subject)
}

// onItsVolumes refuses to start a guest if its disks are not its volumes, as after the restore of
// an old definition: such disks lack the guest's later writes. MayStart checks moving volumes.
// While the registry does not answer, onItsVolumes accepts any disks.
func (e *Env) onItsVolumes(ctx context.Context, verb string, inst api.Instance, dom *hv.Domain) error {
	atts, err := e.subject.RestingOf(ctx, inst.ID)
	if err != nil {
		return err
	}
	if what := subject.Differs(dom, atts); what != "" {
		return api.Errorf(api.CodeChainChanged, "cannot %s instance %s: %s. The guest would not start on its volume: `volferryctl volume which` says what each witness has; if the registry is right, `%s` puts the volume's path back into the definition", verb, inst.Name, what, shell.Line("volferryctl", "instance", "repair", inst.Name))
	}
	return e.subject.OnItsDevices(ctx, verb, inst.Name, atts)
}

func inState(kind string, dom *hv.Domain, name string, force bool) error {
	verb := verbs[kind]
	switch {
	case dom == nil:
		return api.Errorf(api.CodeNotFound, "cannot %s instance %s: it is not defined on this host; `%s` says what is known", verb, name, shell.Line("volferryctl", "instance", "show", name))
	case dom.State == hv.StateOther && (kind != subject.KindStop || !force):
		return api.Errorf(api.CodeInstanceBusy, "cannot %s instance %s: %s", verb, name, request.Unsettled(dom))
	case kind == subject.KindStart:
		switch {
		case dom.State == hv.StatePaused:
			return subject.Forbidden(verb, name, "it is paused; unpause it instead")
		case dom.State.Active():
			return subject.Forbidden(verb, name, "it is %s already", dom.State)
		}
		return request.AtHome("cannot start instance "+name, dom)
	case !dom.State.Active():
		return subject.Forbidden(verb, name, "it is stopped")
	case kind == subject.KindStop && dom.State == hv.StatePaused && !force:
		return subject.Forbidden(verb, name, "it is paused and cannot answer; unpause it first, or use --force")
	case (kind == subject.KindReboot || kind == subject.KindPause) && dom.State == hv.StatePaused:
		return subject.Forbidden(verb, name, "it is paused")
	case kind == subject.KindUnpause && dom.State == hv.StateRunning:
		return subject.Forbidden(verb, name, "it is running")
	}
	return nil
}

// notGuarded refuses the start of a guarded instance, because the libvirt hook, which would refuse
// it, may be missing. A stale guard (staleGuard) does not count.
func (e *Env) notGuarded(ctx context.Context, s *subject.Subject) error {
	guards, err := e.guards.Of(s.InstanceID)
	if err != nil {
		return err
	}
	reasons := make([]string, 0, len(guards))
	for _, held := range guards {
		switch held.Owner {
		case guard.OwnerRoot:
			return subject.NoRoot("start", s.InstanceName)
		case guard.OwnerShelf:
			return subject.Forbidden("start", s.InstanceName, "%s", held.Reason)
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

// staleGuard reports whether a guard belongs to a move that, according to the registry, no longer
// locks the instance: this host was fenced, and the move ended. While the save image exists, it
// returns an error: the operator must discard the memory first.
func (e *Env) staleGuard(ctx context.Context, s *subject.Subject, held guard.Guard) (bool, error) {
	migrationID, ok := strings.CutPrefix(held.Owner, guard.OwnerPause)
	if !ok {
		return false, nil
	}
	inst, found, err := e.subject.Row(ctx, s)
	if err != nil || !found || inst.LockedBy == migrationID {
		if request.Away(err) {
			err = nil // unknown
		}
		return false, err
	}
	rest := &memory.PauseInput{Memory: e.memory.SaveImagePath(s.InstanceID, migrationID)}
	there, err := memory.SaveImageExists(rest)
	if err != nil || !there {
		return err == nil, err
	}
	return false, subject.Forbidden("start", s.InstanceName, "migration %s has saved its memory in %s, and ended without it while this host was fenced; its disks may have gone on since; to give the memory up, remove that file, and start it again",
		migrationID, rest.Memory)
}

func (e *Env) clearStaleGuards(ctx context.Context, s *subject.Subject) error {
	guards, err := e.guards.Of(s.InstanceID)
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
		if err := e.guards.Clear(s.InstanceID, held.Owner); err != nil {
			return err
		}
	}
	return nil
}

func (e *Env) notSwitching(s *subject.Subject, verb string) error {
	if !e.movingGuests.Switching(s.InstanceID) {
		return nil
	}
	return api.Errorf(api.CodeInstanceBusy, "cannot %s instance %s: a migration holds it paused for its switch; `volferryctl migration list` shows which", verb, s.InstanceName)
}
