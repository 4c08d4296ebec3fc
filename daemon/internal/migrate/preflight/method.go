// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/move"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/medium"
)

// checkUnwitnessed refuses some moves from or to an NBD or RBD image: a mirror, an unsafe cache
// mode, or a src without working guards. The kernel does not show who uses such an image, like a
// guest that was started on src.
func (c *Checks) checkUnwitnessed(ctx context.Context, s *move.Spec, dom *hv.Domain, disk *hv.Disk, target api.MigrationTarget) error {
	src, dst := s.SrcKind(), medium.Of(target.ToPath)
	switch {
	case s.Method == move.MethodMirror && (!src.Witnessed || !dst.Witnessed):
		// After a power cut nothing shows whether src has writes that dst lacks.
		return Unsupported(s, "it would have to be mirrored, which is not done from and to an NBD export or an RBD image; leave out --method, or, where the disk can have no overlay, stop instance %s and run this again", dom.Name)
	case disk.Cache == hv.CacheUnsafe && (src.ClientCache || dst.ClientCache):
		return Unsupported(s, "disk %s of instance %s has cache='unsafe', with which QEMU keeps in its memory even what the guest has flushed to an RBD image; set another cache mode, and restart the instance", s.Target, dom.Name)
	case disk.Cache == hv.CacheUnsafe && (src.ServerCache || dst.ServerCache):
		return Unsupported(s, "disk %s of instance %s has cache='unsafe', so QEMU does not flush its writes to an NBD export, and nothing shows which writes the server could not store; set another cache mode, and restart the instance", s.Target, dom.Name)
	case s.Method != move.MethodOverlay || src.Witnessed:
		return nil
	}
	if err := c.users.Fence(ctx, s.Src.Path); err != nil { // a cancel writes to src
		return err
	}
	// A file's stamp and QEMU's locks show a start of the guest. An address shows nothing.
	if err := c.guards.Enforced(); err != nil {
		return api.Errorf(api.CodeStateForbidden, "cannot migrate volume %s: nothing would keep instance %s from a start on its source, of which nobody could tell at %s: %v; `volferryctl doctor` says what to do",
			s.VolumeName, dom.Name, src.Name, err)
	}
	return nil
}

func (c *Checks) checkKeptOff(s *move.Spec, dom *hv.Domain) error {
	if err := c.guards.Enforced(); err != nil {
		return api.Errorf(api.CodeStateForbidden, "cannot migrate volume %s: instance %s would have to be kept stopped, and %v; `volferryctl doctor` says what to do",
			s.VolumeName, dom.Name, err)
	}
	return nil
}

func (c *Checks) chooseMethod(ctx context.Context, s *move.Spec, dom *hv.Domain, disk *hv.Disk, asked string) error {
	if reason := Immovable(disk); reason != "" {
		return Unsupported(s, "disk %s of instance %s %s", s.Target, dom.Name, reason)
	}
	reason := notOverlayable(disk)
	if reason == "" {
		reason = c.underQuota(ctx, s, disk)
	}
	luks := disk.IsLUKS()
	if reason == "" && luks {
		var err error
		if reason, err = c.notEncryptable(ctx, s); err != nil {
			return err
		}
	}
	switch {
	case dom.State.Active() && luks && (mirrorable(reason) || asked == move.MethodMirror):
		return Unsupported(s, "disk %s of instance %s is encrypted by QEMU (LUKS) and would have to be mirrored, which copies what the guest sees and not the header that opens it; leave out --method, or, where the disk can have no overlay, stop the instance and run this again",
			s.Target, dom.Name)
	case dom.State.Active() && mirrorable(reason) && asked == move.MethodOverlay:
		return Unsupported(s, "there can be no overlay on disk %s of instance %s, which %s; use --method auto", s.Target, dom.Name, reason)
	case dom.State.Active() && (mirrorable(reason) || reason == "" && asked == move.MethodMirror):
		s.Method, s.OnlyMirrored, s.MirrorFills = move.MethodMirror, reason, c.mirrorFills(ctx, disk)
		return nil
	case reason == "" && asked != move.MethodMirror:
		s.Method = move.MethodOverlay
		return nil
	case dom.State.Active():
		return Unsupported(s, "disk %s of instance %s %s, so it cannot be moved while the instance runs; stop the instance and run this again: the move is then made with the instance kept stopped",
			s.Target, dom.Name, reason)
	}
	return c.checkKeptOff(s, dom)
}

// mirrorFills reports whether QEMU may write the disk's holes as zeros to the target of a mirror.
// With libvirt 9.0 QEMU opens each target so that zeros may be holes; with 11.3 only for a disk
// with discard='unmap'.
func (c *Checks) mirrorFills(ctx context.Context, disk *hv.Disk) bool {
	if disk.Discard == "unmap" {
		return false
	}
	about, err := c.versions.About(ctx)
	return err != nil || !about.Libvirt.Before(hv.Version{Major: 9, Minor: 1})
}

// Immovable returns why a disk cannot be moved, or "".
func Immovable(d *hv.Disk) string {
	switch {
	case d.Device != "disk":
		return "is a " + d.Device + ", not a disk"
	case d.Encrypted:
		return "is encrypted by QEMU in a way that a move would lose"
	case d.Transient:
		return "is <transient/>: its writes are thrown away at shutdown"
	case d.Slices:
		return "uses only a slice of its image"
	case d.Uncarried != "":
		return "has " + d.Uncarried + ", which a move would lose"
	case d.ImageSetting != "":
		return "has " + d.ImageSetting + ", which libvirt drops when it puts another image there; take it out of the definition first, and set it again afterwards"
	}
	return ""
}

// A disk gets no overlay, but may be mirrored, for these reasons. libvirt refuses an overlay if
// another guest may have the disk open, or if the guest does not write to it. Volferry refuses an
// overlay that, when full, would not pause the guest: the guest would get an I/O error or, with
// the policy ignore, silently lose a write.
const (
	notShareable = "is <shareable/>"
	notReadOnly  = "is <readonly/>"
	notPaused    = "has another error_policy than stop or enospace"
)

func mirrorable(reason string) bool {
	return slices.Contains([]string{notShareable, notReadOnly, notPaused, notPausedByQuota}, reason)
}

// OnlyMirrored returns the refusal of a request that a mirror, the disk's only method while its
// instance runs, cannot serve. The message ends with limit: the limitation and the remedy.
func OnlyMirrored(s *move.Spec, limit string) *api.Error {
	return Unsupported(s, "disk %s of instance %s %s, so it can only be mirrored while the instance runs, which %s",
		s.Target, s.InstanceName, s.OnlyMirrored, limit)
}

func notOverlayable(d *hv.Disk) string {
	switch {
	case d.CopyOnRead:
		return "uses copy_on_read"
	case d.Bus == "sd":
		return "is on the sd bus"
	case d.Shareable:
		return notShareable
	case d.ReadOnly:
		return notReadOnly
	case !slices.Contains([]string{"", pausedByAnyError, "enospace"}, d.ErrorPolicy): // the default is enospc
		return notPaused
	}
	return ""
}

// notEncryptable returns why a LUKS container can have no overlay, or "". The overlay would be
// encrypted with the container's passphrase. It records the size of the container's payload.
func (c *Checks) notEncryptable(ctx context.Context, s *move.Spec) (reason string, err error) {
	if err := c.containers.CheckSecret(ctx, s.SrcImage()); err != nil {
		if errors.Is(err, hv.ErrUnavailable) {
			return "", request.NoHypervisor(err)
		}
		return fmt.Sprintf("is encrypted by QEMU (LUKS), and so has to be what its guest writes while it moves, for which there is no passphrase: %v", err), nil
	}
	s.GuestBytes, err = c.containers.PayloadBytes(ctx, s.SrcImage())
	if api.CodeOf(err) == api.CodeUnsupportedDisk {
		return fmt.Sprintf("is encrypted by QEMU (LUKS), and nobody can tell how large its overlay has to be: %v", err), nil
	}
	return "", err
}

// checkMethod refuses a request for an overlay, or for the frozen src of an external copy, that
// the chosen method cannot serve. A mirror requested for an instance that is off is made offline:
// no QEMU could mirror.
func checkMethod(s *move.Spec, t *api.MigrationTarget) error {
	switch {
	case t.Method == move.MethodOverlay && s.Attached() && s.Method != move.MethodOverlay:
		return Unsupported(s, "there can be no overlay on disk %s of instance %s; use --method auto", s.Target, s.InstanceName)
	case s.Method == move.MethodMirror && t.ExternalCopy && t.Method == move.MethodMirror:
		return api.Errorf(api.CodeInvalidArgument, "an external copy needs a frozen source, which method mirror does not make; leave out one of the two")
	case s.Method == move.MethodMirror && t.ExternalCopy:
		return OnlyMirrored(s, "makes no frozen source for an external copy; stop the instance and run this again")
	}
	return nil
}

// Unsupported returns the refusal of a move of a disk that cannot be moved.
func Unsupported(s *move.Spec, format string, args ...any) *api.Error {
	return api.Errorf(api.CodeUnsupportedDisk, "cannot migrate volume %s: %s", s.VolumeName, fmt.Sprintf(format, args...))
}
