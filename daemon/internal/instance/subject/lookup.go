// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// FindInstance returns an instance from the registry. While the registry does not answer, it
// returns the instance from this host's cache.
func (e *Env) FindInstance(ctx context.Context, ref string) (api.Instance, error) {
	inst, err := e.registry.Instance(ctx, ref)
	if request.Away(err) || errors.Is(err, context.DeadlineExceeded) {
		if known, ok := e.known.KnownInstance(ctx, ref); ok {
			return known, nil
		}
	}
	return inst, err
}

// SubjectOf returns the Subject of an op on an instance of this host.
func (e *Env) SubjectOf(ctx context.Context, inst api.Instance) (Subject, error) {
	host, err := e.host(ctx)
	if err != nil {
		return Subject{}, err
	}
	if !host.named(inst.Host) && inst.State != api.InstanceShelvedOffloaded {
		return Subject{}, api.Errorf(api.CodeNotYourHost, "instance %s is on host %s and this is %s; run this there, or ask the registry", inst.Name, inst.Host, host.Name)
	}
	return Subject{InstanceID: inst.ID, InstanceName: inst.Name, Host: host.ID, HostName: host.Name, Epoch: host.Epoch}, nil
}

// Domain returns an instance's domain, or nil if it does not exist. Errors are typed for the
// runner.
func (e *Env) Domain(ctx context.Context, id string) (*hv.Domain, error) {
	dom, err := e.domains.Domain(ctx, id)
	if errors.Is(err, hv.ErrNotFound) {
		return nil, nil
	}
	return dom, request.HV(err)
}

// IsOurs reports whether the registry has the instance on this host, and not on the shelf.
func (e *Env) IsOurs(ctx context.Context, s *Subject) (bool, error) {
	inst, found, err := e.Row(ctx, s)
	return found && !inst.State.OnShelf(), err
}

// Row reads the instance from the registry, with errors typed for the runner. Another host's
// instance counts as not found.
func (e *Env) Row(ctx context.Context, s *Subject) (inst api.Instance, found bool, err error) {
	inst, err = e.registry.Instance(ctx, s.InstanceID)
	if request.Lost(err) {
		return inst, false, nil
	}
	host := Host{ID: s.Host, Name: s.HostName}
	return inst, err == nil && host.named(inst.Host), request.Registry(err)
}
