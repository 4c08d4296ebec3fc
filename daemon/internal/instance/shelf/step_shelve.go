// SPDX-License-Identifier: Apache-2.0

package shelf

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/guard"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/instance/subject"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// The names of steps that other code uses.
const (
	stepNameStop     = "stop"
	stepNameStore    = "store"
	StepNameUndefine = "undefine"
)

type ranNote struct {
	Ran bool `json:"ran"`
}

// StepStopToShelve stops the instance. The undo starts a guest that ran, if the registry still has
// it on this host.
func (e *Env) StepStopToShelve() op.Step {
	do := func(ctx context.Context, r *op.Run, in *ShelveInput) error {
		var note ranNote
		noted, err := r.Noted(stepNameStop, &note)
		if err != nil {
			return err
		}
		if !noted {
			dom, err := e.subject.Domain(ctx, in.InstanceID)
			if err != nil {
				return err
			}
			if err := r.Note(ctx, ranNote{dom != nil && dom.State == hv.StateRunning}); err != nil {
				return err
			}
		}
		return e.power.PowerOff(ctx, &in.Subject, in.Stopping)
	}
	undo := func(ctx context.Context, r *op.Run, in *ShelveInput) error {
		var note ranNote
		if _, err := r.Noted(stepNameStop, &note); err != nil || !note.Ran {
			return err
		}
		dom, err := e.subject.Domain(ctx, in.InstanceID)
		if err != nil || dom == nil {
			return err
		}
		if !dom.State.Active() { // otherwise an earlier attempt with a lost answer has started it
			if mine, err := e.subject.IsOurs(ctx, &in.Subject); err != nil || !mine {
				return err
			}
			err = e.power.PowerOn(ctx, &in.Subject)
			switch {
			case errors.Is(err, hv.ErrUnavailable), errors.Is(err, hv.ErrBusy), request.Away(err):
				return request.Registry(request.HV(err))
			case err != nil:
				e.log.Warn("an instance that was stopped to be shelved, and was not, is left stopped", "instance", in.InstanceName, "err", err)
				return nil
			}
		}
		_ = e.report(ctx) // the next report has it
		return nil
	}
	observe := func(ctx context.Context, _ *op.Run, in *ShelveInput) (op.Observation, error) {
		dom, err := e.subject.Domain(ctx, in.InstanceID)
		return op.DoneIf(dom == nil || !dom.State.Active()), err
	}
	return subject.Step(stepNameStop, do, undo, observe)
}

// StepGuardShelf prevents starts of the domain on this host. The undo removes the guard only if
// the registry still has the instance on this host.
func (e *Env) StepGuardShelf() op.Step {
	do := func(_ context.Context, _ *op.Run, in *ShelveInput) error { return e.guardShelf(&in.Subject) }
	undo := func(ctx context.Context, _ *op.Run, in *ShelveInput) error {
		if mine, err := e.subject.IsOurs(ctx, &in.Subject); err != nil || !mine {
			return err
		}
		return e.guards.Clear(in.InstanceID, guard.OwnerShelf)
	}
	observe := func(_ context.Context, _ *op.Run, in *ShelveInput) (op.Observation, error) {
		has, err := e.guards.Has(in.InstanceID, guard.OwnerShelf)
		return op.DoneIf(has), err
	}
	return subject.Step("guard", do, undo, observe)
}

func (e *Env) guardShelf(s *subject.Subject) error {
	return e.guards.Set(s.InstanceID, guard.OwnerShelf, shelfReason(s.InstanceName))
}

func shelfReason(name string) string {
	return "instance " + name + " is shelved, or another host's; `" + shell.Line("volferryctl", "instance", "unshelve", name) + "`"
}

type stored struct {
	Digest string `json:"digest"`
}

// StepStore sends the definition to the registry, which then has the instance as shelved. A
// repetition stores the present definition.
func (e *Env) StepStore() op.Step {
	do := func(ctx context.Context, r *op.Run, in *ShelveInput) error {
		if err := e.subject.Reported(ctx); err != nil { // it was just stopped
			return err
		}
		return e.store(ctx, r, in)
	}
	undo := func(ctx context.Context, r *op.Run, in *ShelveInput) error {
		inst, found, err := e.subject.Row(ctx, &in.Subject)
		if err != nil || in.Was || !found || inst.State != api.InstanceShelved {
			return err
		}
		err = e.leaveShelf(ctx, r, &in.Subject, "unstore", api.InstanceStopped)
		if request.Lost(err) {
			return nil
		}
		return request.Registry(err)
	}
	return subject.Step(stepNameStore, do, undo, nil)
}

func (e *Env) store(ctx context.Context, r *op.Run, in *ShelveInput) error {
	def, digest, err := e.CollectDefinition(ctx, in)
	if err != nil {
		return err
	}
	inst, found, err := e.subject.Row(ctx, &in.Subject)
	switch {
	case err != nil:
		return err
	case !found:
		return api.Errorf(api.CodeNotYourHost, "instance %s is not this host's any more", in.InstanceName)
	}
	from := api.InstanceStopped
	if inst.State == api.InstanceShelved {
		from = api.InstanceShelved
	}
	if err := r.Note(ctx, stored{digest}); err != nil {
		return err
	}
	_, err = e.registry.TransitionInstance(ctx, r.OpID()+".store."+string(from)+"."+digest[:8], in.InstanceID, api.InstanceTransition{
		From: from, To: api.InstanceShelved, Host: in.Host, Epoch: in.Epoch, OpID: r.OpID(), Definition: &def,
	})
	return request.Registry(err)
}

// StepUndefine removes the domain from this host, irrevocably, once the registry has the present
// definition.
func (e *Env) StepUndefine() op.Step {
	do := func(ctx context.Context, r *op.Run, in *ShelveInput) error {
		if in.Keep {
			return nil
		}
		inst, found, err := e.subject.Row(ctx, &in.Subject)
		switch {
		case err != nil:
			return err
		case !found || inst.State != api.InstanceShelved:
			return api.Errorf(api.CodeConflict, "cannot shelve instance %s: the registry does not have it on this host's shelf any more", in.InstanceName)
		}
		if err := e.storedAsItIs(ctx, r, in); err != nil {
			return err
		}
		err = e.definitions.UndefineDomain(ctx, in.InstanceID)
		if errors.Is(err, hv.ErrActive) {
			return subject.Forbidden("shelve", in.InstanceName, "somebody has started it")
		}
		return request.HV(err)
	}
	observe := func(ctx context.Context, _ *op.Run, in *ShelveInput) (op.Observation, error) {
		if in.Keep {
			return op.Done, nil
		}
		dom, err := e.subject.Domain(ctx, in.InstanceID)
		return op.DoneIf(dom == nil), err
	}
	return subject.Step(StepNameUndefine, do, nil, observe)
}

func (e *Env) storedAsItIs(ctx context.Context, r *op.Run, in *ShelveInput) error {
	dom, err := e.subject.Domain(ctx, in.InstanceID)
	switch {
	case err != nil || dom == nil:
		return err
	case dom.State.Active():
		return subject.Forbidden("shelve", in.InstanceName, "somebody has started it")
	}
	var had stored
	for _, name := range []string{StepNameUndefine, stepNameStore} {
		if noted, err := r.Noted(name, &had); err != nil {
			return err
		} else if noted {
			break
		}
	}
	_, digest, err := e.CollectDefinition(ctx, in)
	if err != nil || digest == had.Digest {
		return err
	}
	e.log.Info("the definition of a shelved instance was changed, and is stored again", "instance", in.InstanceName)
	return e.store(ctx, r, in)
}

// StepOffload reports to the registry that no host has the instance.
func (e *Env) StepOffload() op.Step {
	do := func(ctx context.Context, r *op.Run, in *ShelveInput) error {
		if in.Keep {
			return nil
		}
		err := e.leaveShelf(ctx, r, &in.Subject, "offload", api.InstanceShelvedOffloaded)
		return request.Registry(err)
	}
	observe := func(ctx context.Context, _ *op.Run, in *ShelveInput) (op.Observation, error) {
		if in.Keep {
			return op.Done, nil
		}
		// If the registry no longer has the instance on this host, it was offloaded, or a fence
		// took it.
		inst, found, err := e.subject.Row(ctx, &in.Subject)
		return op.DoneIf(!found || inst.State != api.InstanceShelved), err
	}
	return subject.Step("offload", do, nil, observe)
}

// leaveShelf has the registry change an instance that is shelved on this host to another state,
// with this host's present epoch.
func (e *Env) leaveShelf(ctx context.Context, r *op.Run, s *subject.Subject, what string, to api.InstanceState) error {
	now := func() (int64, error) {
		h, err := e.host(ctx)
		return h.Epoch, err
	}
	return request.AsOfNow(s.Epoch, now, func(epoch int64, again string) error {
		_, err := e.registry.TransitionInstance(ctx, r.OpID()+"."+what+again, s.InstanceID, api.InstanceTransition{
			From: api.InstanceShelved, To: to, Host: s.Host, Epoch: epoch, OpID: r.OpID(),
		})
		return err
	})
}
