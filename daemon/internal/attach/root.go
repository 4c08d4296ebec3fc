// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/diskspec"
	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/shell"
)

// A root volume is attached and detached only while its instance is off. A guard prevents starts
// while its slot is empty.

type rootChange struct {
	code    api.Code
	verdict string // formatted with the volume and the instance
}

var (
	rootAttach = rootChange{api.CodeRootAttachForbidden, "cannot attach root device volume %s to instance %s"}
	rootDetach = rootChange{api.CodeRootDetachForbidden, "cannot detach root device volume %s from instance %s"}
)

func (in *input) cannot(what rootChange) string {
	return fmt.Sprintf(what.verdict, in.VolumeName, in.InstanceName)
}

func (in *input) off(what rootChange, dom *hv.Domain) error {
	switch {
	case dom == nil:
		return api.Errorf(what.code, "%s: it has no domain on this host; `virsh list --all` shows those that there are", in.cannot(what))
	case dom.Moved:
		return api.Errorf(what.code, "%v", request.AtHome(in.cannot(what), dom))
	case dom.State == hv.StateStopped:
		return nil
	case dom.State == hv.StateOther && dom.PauseReason != "":
		return api.Errorf(what.code, "%s: it is %s; stop it first: `%s`", in.cannot(what), dom.PauseReason, shell.Line("volferryctl", "instance", "stop", "--force", "--", dom.Name)).
			With("state", dom.PauseReason)
	case dom.State == hv.StateOther:
		return api.Errorf(what.code, "%s: it is not off; stop it first", in.cannot(what))
	}
	return api.Errorf(what.code, "%s: it is %s; stop it first", in.cannot(what), dom.State).With("state", dom.State)
}

// onShelf refuses to change the root of a shelved instance: before the offload the slot does not
// change, and afterwards the registry changes it.
func (in *input) onShelf(what rootChange, inst api.Instance) error {
	if inst.State != api.InstanceShelved && inst.State != api.InstanceShelvedOffloaded {
		return nil
	}
	return api.Errorf(what.code, "%s: it is %s; `%s` first", in.cannot(what), inst.State, shell.Line("volferryctl", "instance", "unshelve", inst.Name)).With("state", inst.State)
}

func checkLocked(verdict string, inst api.Instance) error {
	switch {
	case !inst.Locked:
		return nil
	case inst.LockedBy != "":
		return api.Errorf(api.CodeInstanceLocked, "%s: instance %s is locked by migration %s; try again when that is over", verdict, inst.Name, inst.LockedBy).
			With("migration_id", inst.LockedBy)
	}
	return api.Errorf(api.CodeInstanceLocked, "%s: instance %s is locked (%s); `%s` if that is over", verdict, inst.Name, inst.LockReason, shell.Line("volferryctl", "instance", "unlock", inst.Name))
}

// freshen reports this host's state before an op of a root volume: the registry requires a stopped
// instance, and may not know of the stop yet.
func (e *env) freshen(ctx context.Context, in *input) {
	if in.Root {
		e.Report(ctx)
	}
}

func (e *env) chooseRoot(ctx context.Context, in *input, device string, dom *hv.Domain, inst api.Instance) error {
	if err := cmp.Or(in.onShelf(rootAttach, inst), in.off(rootAttach, dom)); err != nil {
		return err
	}
	refuse := func(code api.Code, format string, args ...any) *api.Error {
		return api.Errorf(code, "%s: %s", in.cannot(rootAttach), fmt.Sprintf(format, args...))
	}
	s := inst.RootSlot()
	switch {
	case s == nil:
		return refuse(api.CodeNotFound, "it has no slot that it boots from; attach the volume without --root")
	case device != "" && device != s.Device:
		return refuse(api.CodeInvalidArgument, "it boots from %s, not from %s; leave --device out", s.Device, device)
	case s.VolumeID != nil:
		return refuse(api.CodeConflict, "it has volume %s there already; detach that first", e.volumeName(ctx, *s.VolumeID)).With("volume_id", *s.VolumeID)
	case s.Note != "":
		return refuse(api.CodeUnsupportedDisk, "its disk %s is what it boots from, and that is %s; only volumes are changed", s.Device, s.Note)
	case dom.ConfigDisk(s.Device) != nil:
		return refuse(api.CodeConflict, "its definition has a disk %s that the registry does not know of; take that out first (`%s`)",
			s.Device, shell.Line("virsh", "detach-disk", "--config", "--", inst.Name, s.Device))
	}
	in.Device, in.BootIndex, in.Root, in.Slot = s.Device, s.BootIndex, true, s.Slot
	was, err := e.slotDisk(in)
	switch {
	case err != nil:
		return err
	case was != nil:
		return in.placeFree(dom, was)
	case api.CheckDevice(s.Device) != nil, diskspec.BusOf(s.Device) == "scsi" && !hasSCSI(dom):
		return refuse(api.CodeUnsupportedDisk, "nothing is known of the disk %s that was there, and it is no virtio disk; define one with virsh and adopt the instance again", s.Device)
	}
	return nil
}

func (e *env) volumeName(ctx context.Context, id string) string {
	vol, err := e.Registry.Volume(ctx, id)
	if err != nil {
		return id
	}
	return vol.Name
}

func (in *input) placeFree(dom *hv.Domain, was *hv.Disk) error {
	i := slices.IndexFunc(dom.Config, func(d hv.Disk) bool { return d.SamePlace(was) })
	if i < 0 {
		return nil
	}
	return api.Errorf(api.CodeConflict, "%s: disk %s has got the address %s since, which is the root's; detach that one, attach the root volume, and then that one again",
		in.cannot(rootAttach), dom.Config[i].Target, was.Address)
}
