// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/image"
	"github.com/volferry/volferry/daemon/internal/location"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/daemon/internal/witness"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

func (e *env) checkLocation(ctx context.Context, in *input) error {
	if err := e.rules.CheckLocation(ctx, e.Pools, in.Location, "cannot attach volume "+in.VolumeName); err != nil {
		return request.HV(err)
	}
	l := in.Location
	info, err := e.Images.Inspect(ctx, l)
	switch {
	case errors.Is(err, image.ErrAbsent):
		return api.Errorf(api.CodeNotFound, "cannot attach volume %s: there is nothing at %s on this host", in.VolumeName, l.Path)
	case err != nil:
		return err
	}
	in.Block = info.Block
	if err := e.checkOwn(ctx, in); err != nil {
		return err
	}
	if err := e.checkReachable(ctx, in); err != nil {
		return err
	}
	if err := e.checkUsers(ctx, in); err != nil {
		return err
	}
	if err := e.checkOpens(ctx, in); err != nil {
		return err
	}
	in.Location.SizeBytes, err = request.TakeSize(ctx, e.Registry, in.VolumeID, in.VolumeName, l, info.SizeBytes)
	return err
}

// checkBefore makes the checks of checkLocation before the volume is connected. If the volume gets
// its device only then, stepConnect makes them.
func (e *env) checkBefore(ctx context.Context, in *input) error {
	connectable, err := location.Connectable(ctx, e.Devices, in.Location.Path)
	if err != nil {
		return request.HV(err)
	}
	if connectable {
		_, err := e.Images.Inspect(ctx, in.Location)
		if errors.Is(err, image.ErrAbsent) {
			in.Block = true
			if in.Location.Pool == "" {
				return e.rules.CheckPath(ctx, in.Location.Path)
			}
			return nil
		}
	}
	return e.checkLocation(ctx, in)
}

// checkReachable refuses an image in a directory that the guest's QEMU cannot traverse: a guest
// that is off would fail at its next start.
func (e *env) checkReachable(ctx context.Context, in *input) error {
	user, confined, err := e.qemuUser(ctx, in)
	if err != nil || !confined {
		return err
	}
	dir := location.Directory(in.Location.Path)
	return image.Refused("attach volume "+in.VolumeName, dir, e.Images.Reach(user, dir))
}

// checkOpens refuses an image that the guest's QEMU could not open for writing. It skips a shared
// volume: the attempt changes the image's owner, and might take it from other guests.
func (e *env) checkOpens(ctx context.Context, in *input) error {
	if in.Shareable || in.Mode != api.ModeRW {
		return nil
	}
	user, confined, err := e.qemuUser(ctx, in)
	if err != nil || !confined {
		return err
	}
	return image.Refused("attach volume "+in.VolumeName, in.Location.Path, e.Images.MayOpen(user, in.Location.Path))
}

func (e *env) qemuUser(ctx context.Context, in *input) (user hv.ProcessUser, confined bool, err error) {
	user, confined, err = hv.ConfinedUser(ctx, e.Processes, in.InstanceID)
	if errors.Is(err, hv.ErrNotFound) {
		user, confined, err = hv.ConfinedUser(ctx, e.Processes, "")
	}
	return user, confined, request.HV(err)
}

// checkOwn refuses an image that another volume or its migration has, perhaps by another path. It
// also checks the base images, which another host named.
func (e *env) checkOwn(ctx context.Context, in *input) error {
	look, err := e.Claims.Look(ctx)
	if err != nil {
		return request.HV(request.Registry(err))
	}
	what := in.Location.Path
	holder, err := look.Holder(what, location.Self{VolumeID: in.VolumeID})
	if err == nil && holder.Words == "" {
		var base string
		base, holder, err = look.BasesHolder(in.Location)
		what = "its base image " + base
	}
	switch {
	case err != nil:
		return api.Errorf(api.CodeStateForbidden, "cannot attach volume %s: %s: %v", in.VolumeName, what, err)
	case holder.Words != "":
		return api.Errorf(api.CodeVolumeInUse, "cannot attach volume %s: %s %s", in.VolumeName, what, holder.Words)
	}
	return nil
}

type user struct {
	instanceID, instance string
	disk                 hv.Disk
}

func (e *env) users(ctx context.Context, path string) ([]user, error) {
	doms, err := e.Domains.Domains(ctx)
	if err != nil {
		return nil, request.HV(err)
	}
	place := location.PlaceOf(path)
	var all []user
	for i := range doms {
		for _, d := range slices.Concat(doms[i].Live, doms[i].Config) {
			named, err := place.NamedBy(&d)
			if err != nil {
				return nil, api.Errorf(api.CodeStateForbidden, "cannot tell whether %s is disk %s of instance %s: %v; mend that filesystem, or take the disk from that instance",
					path, d.Target, doms[i].Name, err)
			}
			if named {
				all = append(all, user{doms[i].ID, doms[i].Name, d})
			}
		}
	}
	return all, nil
}

// notUnderAnotherID refuses to end the attachment of an instance without a domain if a domain with
// the instance's name, but another UUID, has the volume.
func (e *env) notUnderAnotherID(ctx context.Context, in *input, verdict string) error {
	users, err := e.users(ctx, in.Location.Path)
	if err != nil {
		return err
	}
	for _, u := range users {
		if u.instance == in.InstanceName && u.instanceID != in.InstanceID {
			return api.Errorf(api.CodeChainChanged, "%s: instance %s is not defined on this host any more, and a domain of its name with another UUID, %s, has the volume as disk %s; give that domain its UUID back (`%s` says how), or take the disk from it (`%s`)",
				verdict, u.instance, u.instanceID, u.disk.Target, shell.Line("volferryctl", "instance", "show", u.instance), shell.Line("virsh", "detach-disk", "--", u.instance, u.disk.Target))
		}
	}
	return nil
}

func (e *env) checkUsers(ctx context.Context, in *input) error {
	inUse := func(who string) error {
		return api.Errorf(api.CodeVolumeInUse, "cannot attach volume %s: %s is in use: %s", in.VolumeName, in.Location.Path, who)
	}
	held, err := e.Images.InUse(ctx, in.Location.Path, func(ctx context.Context) (least, most int, err error) { return e.clientsBeside(ctx, in) })
	if err != nil {
		return fmt.Errorf("see who uses %s: %w", in.Location.Path, err)
	}
	if held != "" {
		return inUse(held)
	}
	users, err := e.users(ctx, in.Location.Path)
	if err != nil || len(users) == 0 {
		return err
	}
	granted, err := e.beside(ctx, in)
	if err != nil {
		return err
	}
	for _, u := range users {
		may := slices.ContainsFunc(granted, func(a api.Attachment) bool { return a.InstanceID == u.instanceID && a.Device == u.disk.Target })
		if !may || !u.disk.Shareable || u.instanceID == in.InstanceID {
			return inUse(fmt.Sprintf("it is disk %s of instance %s", u.disk.Target, u.instance))
		}
	}
	return nil
}

func (e *env) beside(ctx context.Context, in *input) ([]api.Attachment, error) {
	if !in.Shareable {
		return nil, nil
	}
	all, err := e.Registry.Attachments(ctx, in.VolumeID, "")
	if err != nil {
		return nil, request.Registry(err)
	}
	return slices.DeleteFunc(all, func(a api.Attachment) bool { return a.ID == in.AttachmentID }), nil
}

// clientsBeside counts the clients of an RBD image that other attachments explain: at least the
// guests of this host, at most also the guests of other hosts.
func (e *env) clientsBeside(ctx context.Context, in *input) (least, most int, err error) {
	beside, err := e.beside(ctx, in)
	if err != nil {
		return 0, 0, err
	}
	var here []string
	for i := range beside {
		switch a := &beside[i]; {
		case a.Host == in.Host || a.Host == in.HostName:
			here = append(here, a.InstanceID)
		case a.State != api.AttachmentReserved:
			most++
		}
	}
	least, err = witness.Clients(ctx, e.Processes, in.Location.Path, here...)
	return least, least + most, err
}

func checkDomain(verdict string, dom *hv.Domain) error {
	switch {
	case !dom.Persistent:
		return api.Errorf(api.CodeStateForbidden, "%s: instance %s is transient, so nothing would be left of it at its next start; define it first (virsh dumpxml, virsh define)",
			verdict, dom.Name)
	case dom.State == hv.StateOther:
		return api.Errorf(api.CodeInstanceBusy, "%s: %s", verdict, request.Unsettled(dom))
	case !dom.State.Active() && dom.ManagedSave:
		return api.Errorf(api.CodeStateForbidden, "%s: instance %s has a managed save image, which names its disks of then; start it, or run `%s`",
			verdict, dom.Name, shell.Line("virsh", "managedsave-remove", "--", dom.Name))
	}
	return request.AtHome(verdict, dom)
}
