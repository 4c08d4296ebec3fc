// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/daemon/internal/witness"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// UserOf describes the user of the image at path, in words that follow its name: a domain of this
// host with an id not in except, or a mount or device of the kernel. It returns "" if it sees no
// user.
func (e *Env) UserOf(ctx context.Context, path string, except ...string) (string, error) {
	doms, err := e.domains.Domains(ctx)
	if err != nil {
		return "", err
	}
	others := slices.DeleteFunc(slices.Clone(doms), func(d hv.Domain) bool { return slices.Contains(except, d.ID) })
	domain, target, err := location.DiskOf(others, path)
	switch {
	case err != nil:
		return "", UserUnknown(path, err)
	case domain != "":
		return fmt.Sprintf("is disk %s of instance %s", target, domain), nil
	}
	user, err := e.images.InUse(ctx, path, func(ctx context.Context) (least, most int, err error) {
		n, err := witness.Clients(ctx, e.processes, path, except...)
		return n, n, err
	})
	if err != nil {
		return "", fmt.Errorf("see who uses %s: %w", path, err)
	}
	if user != "" {
		return "is in use: " + user, nil
	}
	return "", nil
}

// UserUnknown returns the refusal of a path if its users cannot be determined.
func UserUnknown(path string, why error) *api.Error {
	return api.Errorf(api.CodeStateForbidden, "cannot tell whether %s is in use: %v; mend that filesystem, or take the disk from that instance, and call again", path, why)
}

// HVRefusal converts an error of the hypervisor into a refusal for a caller of the API; nil for
// nil.
func HVRefusal(err error) error {
	var unreadable *hv.Unreadable
	if errors.As(err, &unreadable) || errors.Is(err, hv.ErrUnavailable) {
		return request.Refused(err)
	}
	return err
}

// SrcNotInUse refuses a src with another user on this host than the migration's instance. The
// registry does not know a domain that was never adopted, or was forgotten. Such a domain would
// write to src during the copy, and keep src. SrcNotInUse is called before a migration begins and
// before the switch, since definitions may change meanwhile.
func (e *Env) SrcNotInUse(ctx context.Context, s *move.Spec) error {
	user, err := e.UserOf(ctx, s.Src.Path, s.InstanceID)
	if err != nil {
		return e.move.HVError(err)
	}
	return srcInUse(s, user)
}

// OthersHaveSrc makes the check of SrcNotInUse before src is copied or checked. For a network src
// (NBD, RBD) libvirt and QEMU must first agree about the guest's images, since an unknown client
// may be the guest itself. While a block job runs, a network src is not checked.
func (e *Env) OthersHaveSrc(ctx context.Context, s *move.Spec) error {
	if s.SrcKind().Witnessed || !s.Attached() {
		return e.SrcNotInUse(ctx, s)
	}
	disk, err := e.move.ReadDisk(ctx, s)
	if err != nil || disk.Mirror != nil {
		return err
	}
	if _, err := e.ConfirmDisk(ctx, s); err != nil {
		return err
	}
	return e.SrcNotInUse(ctx, s)
}

// EndNotInUse refuses to fold the overlay into an NBD or RBD image that another instance has: QEMU
// locks only files and devices.
func (e *Env) EndNotInUse(ctx context.Context, s *move.Spec, to move.Direction) error {
	switch {
	case to.Kind(s).Witnessed:
		return nil
	case to.End == move.OnSrc:
		return e.SrcNotInUse(ctx, s)
	}
	return e.DstNotInUse(ctx, s)
}

// DstNotInUse is CheckFree for dst, with errors typed for the runner.
func (e *Env) DstNotInUse(ctx context.Context, s *move.Spec) error {
	return e.move.HVError(e.move.RegistryError(e.CheckFree(ctx, s.Dst.Path, location.Self{MigrationID: s.MigrationID})))
}

func srcInUse(s *move.Spec, user string) error {
	if user == "" {
		return nil
	}
	by := "no host has it at an instance"
	switch {
	case s.LedByRegistry():
		by = "only instances that move with it have it"
	case s.Attached():
		by = "it is attached to instance " + s.InstanceName + " alone"
	}
	return api.Errorf(api.CodeVolumeInUse, "cannot migrate volume %s: by the registry %s, but %s %s; take the disk from there, or have the instance adopted first if it is none of Volferry's yet (volferryctl instance adopt)",
		s.VolumeName, by, s.Src.Path, user)
}

// CheckFree refuses an image that is in use on this host, is a volume (by any path), or belongs to
// a migration.
func (e *Env) CheckFree(ctx context.Context, path string, self location.Self) error {
	user, err := e.UserOf(ctx, path)
	if err != nil {
		return err
	}
	if user == "" {
		// Wait for a request that takes the image and has not registered it yet.
		holder, err := e.claims.Take(ctx, path, self, func() error { return nil })
		if errors.Is(err, location.ErrCannotTell) {
			return UserUnknown(path, err)
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

// CheckSrcNotInUse is SrcNotInUse with errors for a caller of the API. The instances with the ids
// in except may have src.
func (e *Env) CheckSrcNotInUse(ctx context.Context, s *move.Spec, except ...string) error {
	user, err := e.UserOf(ctx, s.Src.Path, except...)
	if err != nil {
		return HVRefusal(err)
	}
	return srcInUse(s, user)
}

// NotNamed makes sure, before an image is deleted, that no domain of this host has it in a chain
// or open.
func (e *Env) NotNamed(ctx context.Context, path string) error {
	doms, err := e.domains.Domains(ctx)
	if err != nil {
		return e.move.HVError(err)
	}
	domain, target, err := location.DiskOf(doms, path)
	switch {
	case err != nil:
		return op.UnknownOutcome(UserUnknown(path, err))
	case domain != "":
		i := slices.IndexFunc(doms, func(d hv.Domain) bool { return d.Name == domain })
		detach := detachCommand(&doms[i], target)
		return op.UnknownOutcome(move.Cured(api.Errorf(api.CodeDstInUse, "%s was to be deleted, but disk %s of instance %s uses it; nothing was deleted: take the disk from there (`%s`), and call again", path, target, domain, detach), detach))
	}
	return e.notOpen(ctx, doms, path)
}

func detachCommand(dom *hv.Domain, target string) string {
	words := []string{"virsh", "detach-disk"}
	if dom.LiveDisk(target) != nil {
		words = append(words, "--live")
	}
	if dom.ConfigDisk(target) != nil {
		words = append(words, "--config")
	}
	return shell.Line(append(words, "--", dom.Name, target)...)
}
