// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// Forbidden returns the refusal of an action that the instance's state forbids.
func Forbidden(verb, name, why string, args ...any) *api.Error {
	return api.Errorf(api.CodeStateForbidden, "cannot "+verb+" instance "+name+": "+why, args...)
}

// Locked returns the refusal of a change of a locked instance.
func Locked(verb string, inst api.Instance) *api.Error {
	if inst.LockedBy != "" {
		return api.Errorf(api.CodeInstanceLocked, "cannot %s instance %s: it is locked (%s); migration %s unlocks it when it is over", verb, inst.Name, inst.LockReason, inst.LockedBy).
			With("locked_by", inst.LockedBy)
	}
	return api.Errorf(api.CodeInstanceLocked, "cannot %s instance %s: it is locked (%s); `%s`, if that may be", verb, inst.Name, inst.LockReason, shell.Line("volferryctl", "instance", "unlock", inst.Name))
}

// NoRoot returns the refusal for an instance without its root volume.
func NoRoot(verb, name string) *api.Error {
	return api.Errorf(api.CodeRootVolumeMissing, "cannot %s instance %s without a root device volume; attach one with `%s`", verb, name, shell.Line("volferryctl", "volume", "attach", "VOLUME", name, "--root"))
}

// RefusedFor returns a migration's refusal as the refusal of an action on an instance.
func RefusedFor(verb, name string, err error) error {
	return api.Errorf(cmp.Or(api.CodeOf(err), api.CodeInternal), "cannot %s instance %s: %v", verb, name, err)
}

// Refusal turns an error of the hypervisor into an error for the caller, or makes the runner wait.
func (s *Subject) Refusal(verb string, err error) error {
	cannot := func(code api.Code, why string) error {
		return api.Errorf(code, "cannot %s instance %s: %s", verb, s.InstanceName, why)
	}
	foreign, leans := errors.AsType[*hv.NotPortableError](err)
	switch {
	case leans && verb == "shelve":
		return cannot(api.CodeUnsupportedDisk, fmt.Sprintf("its definition has %s, which other hosts may not have; take that out of the definition, or only stop the instance, which stays on this host then: `%s`",
			foreign.Has, shell.Line("volferryctl", "instance", "stop", s.InstanceName)))
	case errors.Is(err, hv.ErrGuarded):
		return cannot(api.CodeInstanceBusy, err.Error())
	case errors.Is(err, hv.ErrInUse):
		return cannot(api.CodeVolumeInUse, err.Error())
	case errors.Is(err, hv.ErrUnsupported):
		return cannot(api.CodeUnsupportedDisk, err.Error())
	case errors.Is(err, hv.ErrNotActive):
		return cannot(api.CodeStateForbidden, "it is stopped")
	case errors.Is(err, hv.ErrNotFound):
		return cannot(api.CodeNotFound, "it is not defined on this host any more")
	}
	return request.HV(err)
}
