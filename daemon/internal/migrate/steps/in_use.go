// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// userOf says who has the image at path, in words that go on after its name: a
// domain of this host other than those with the ids except, or what the kernel lends
// it to. Empty if nobody that can be seen has it.
func (e *Env) userOf(ctx context.Context, path string, except ...string) (string, error) {
	doms, err := e.hv.Domains(ctx)
	if err != nil {
		return "", err
	}
	others := slices.DeleteFunc(slices.Clone(doms), func(d hv.Domain) bool { return slices.Contains(except, d.ID) })
	domain, target, err := location.DiskOf(others, path)
	switch {
	case err != nil:
		return "", CannotTellUser(path, err)
	case domain != "":
		return fmt.Sprintf("is disk %s of instance %s", target, domain), nil
	}
	user, err := e.images.InUse(ctx, path)
	if err != nil {
		return "", fmt.Errorf("see who uses %s: %w", path, err)
	}
	if user != "" {
		return "is in use: " + user, nil
	}
	return "", nil
}

// CannotTellUser refuses a path of which nobody can tell whether somebody has it.
func CannotTellUser(path string, why error) *api.Error {
	return api.Errorf(api.CodeStateForbidden, "cannot tell whether %s is in use: %v; mend that filesystem, or take the disk from that instance", path, why)
}

// HVRefusal is an error of userOf for whoever asks for something, nil for nil.
func HVRefusal(err error) error {
	var unreadable *hv.Unreadable
	if errors.As(err, &unreadable) {
		return request.Refused(err)
	}
	if errors.Is(err, hv.ErrUnavailable) {
		return NoHypervisor()
	}
	return err
}

// srcNotInUse refuses a src that anybody on this host has but the instance of the migration.
// The registry knows of no other, but a domain that was never adopted, or forgotten,
// would write to src while it is copied, and go on with it when the volume is at dst.
// It is asked before a migration begins and again before the switch: the definitions
// of domains are anybody's to change meanwhile.
func (e *Env) srcNotInUse(ctx context.Context, s *Spec) error {
	user, err := e.userOf(ctx, s.Src.Path, s.InstanceID)
	if err != nil {
		return e.hvError(err)
	}
	return srcInUse(s, user)
}

func srcInUse(s *Spec, user string) error {
	if user == "" {
		return nil
	}
	by := "no host has it at an instance"
	switch {
	case s.Method == MethodSave:
		by = "all its guests are paused"
	case s.Attached():
		by = "it is attached to instance " + s.InstanceName + " alone"
	}
	return api.Errorf(api.CodeVolumeInUse, "cannot migrate volume %s: by the registry %s, but %s %s; take the disk from there, or have the instance adopted first if it is none of Volferry's yet (volferryctl instance adopt)",
		s.VolumeName, by, s.Src.Path, user)
}

// CheckFree refuses an image that a domain of this host names or the kernel lends to
// somebody, that is a volume, by whatever name, or that belongs to a migration.
func (e *Env) CheckFree(ctx context.Context, path string, self location.Self) error {
	user, err := e.userOf(ctx, path, "")
	if err != nil {
		return err
	}
	if user == "" {
		// Who takes an image and has not registered it yet is waited for.
		holder, err := e.claims.Take(ctx, path, self, func() error { return nil })
		if errors.Is(err, location.ErrCannotTell) {
			return CannotTellUser(path, err)
		}
		if err != nil {
			return err
		}
		user = holder.Words
	}
	if user == "" {
		return nil
	}
	return api.Errorf(api.CodeDstInUse, "%s %s", path, user)
}

// CheckSrcNotInUse is srcNotInUse for whoever asks for something. Except are the ids of the
// instances that may have src.
func (e *Env) CheckSrcNotInUse(ctx context.Context, s *Spec, except ...string) error {
	user, err := e.userOf(ctx, s.Src.Path, except...)
	if err != nil {
		return HVRefusal(err)
	}
	return srcInUse(s, user)
}
