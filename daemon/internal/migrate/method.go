// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/migrate/steps"
	"github.com/volferry/volferry/daemon/internal/request"
	"github.com/volferry/volferry/internal/api"
)

// How a disk is moved: what it can have, and whether its instance runs, decide.

// chooseOverNetwork is chooseMethod for a volume that comes from or goes to an address.
func (m *Manager) chooseOverNetwork(ctx context.Context, s *steps.Spec, dom *hv.Domain, disk *hv.Disk, target api.MigrationTarget) error {
	if err := m.chooseMethod(ctx, s, dom, disk, target.Method); err != nil {
		return err
	}
	if s.Method == steps.MethodMirror {
		// Of a src at an address nobody can tell, after a power cut, whether it was written behind
		// dst.
		return unsupported(s, "it would have to be mirrored, which is not done from and to an NBD export or an RBD image; leave out --method, or, where the disk can have no overlay, stop instance %s and run this again", dom.Name)
	}
	if disk.Cache == hv.CacheUnsafe && (api.IsRBD(s.Src.Path) || api.IsRBD(target.ToPath)) {
		return unsupported(s, "disk %s of instance %s has cache='unsafe', with which QEMU keeps in its memory even what the guest has flushed to an RBD image; set another cache mode, and restart the instance", s.Target, dom.Name)
	}
	if s.Method != steps.MethodOverlay || !api.IsNetwork(s.Src.Path) {
		return nil
	}
	if err := m.ports.Images.Fence(ctx, s.Src.Path); err != nil { // a cancel writes to it
		return err
	}
	// Of a file the stamp and QEMU's locks tell of a start of the guest on src; of an address
	// nothing does.
	if err := m.ports.Guards.Enforced(); err != nil {
		return api.Errorf(api.CodeStateForbidden, "cannot migrate volume %s: nothing would keep instance %s from a start on its source, of which nobody could tell at %s: %v; `volferryctl doctor` says what to do",
			s.VolumeName, dom.Name, api.AddressKind(s.Src.Path), err)
	}
	return nil
}

// checkKeptOff refuses a move that has to keep an instance stopped, where nothing would.
func (m *Manager) checkKeptOff(s *steps.Spec, dom *hv.Domain) error {
	if err := m.ports.Guards.Enforced(); err != nil {
		return api.Errorf(api.CodeStateForbidden, "cannot migrate volume %s: instance %s would have to be kept stopped, and %v; `volferryctl doctor` says what to do",
			s.VolumeName, dom.Name, err)
	}
	return nil
}

// chooseMethod decides between overlay, mirror and offline, or refuses the disk.
func (m *Manager) chooseMethod(ctx context.Context, s *steps.Spec, dom *hv.Domain, disk *hv.Disk, asked string) error {
	if reason := immovable(disk); reason != "" {
		return unsupported(s, "disk %s of instance %s %s", s.Target, dom.Name, reason)
	}
	reason := notOverlayable(disk)
	if reason == "" {
		reason = m.underQuota(ctx, s, disk)
	}
	if reason == "" && disk.IsLUKS() {
		var err error
		if reason, err = m.notEncryptable(ctx, s); err != nil {
			return err
		}
	}
	switch {
	case dom.State.Active() && disk.IsLUKS() && (mirrorable(reason) || asked == steps.MethodMirror):
		return unsupported(s, "disk %s of instance %s is encrypted by QEMU (LUKS) and would have to be mirrored, which copies what the guest sees and not the header that opens it; leave out --method, or, where the disk can have no overlay, stop the instance and run this again",
			s.Target, dom.Name)
	case dom.State.Active() && mirrorable(reason) && asked == steps.MethodOverlay:
		return unsupported(s, "there can be no overlay on disk %s of instance %s, which %s; use --method auto", s.Target, dom.Name, reason)
	case dom.State.Active() && (mirrorable(reason) || reason == "" && asked == steps.MethodMirror):
		s.Method, s.OnlyMirrored, s.MirrorFills = steps.MethodMirror, reason, m.mirrorFills(ctx, disk)
		return nil
	case reason == "" && asked != steps.MethodMirror:
		s.Method = steps.MethodOverlay
		return nil
	case dom.State.Active():
		return unsupported(s, "disk %s of instance %s %s, so it cannot be moved while the instance runs; stop the instance and run this again: the move is then made with the instance kept stopped",
			s.Target, dom.Name, reason)
	}
	return m.checkKeptOff(s, dom)
}

// mirrorFills reports whether QEMU may write what is a hole in the disk to the target of a mirror.
// libvirt 9.0 had QEMU open each target so that zeros may be holes there; 11.3 does so only for a
// disk with discard='unmap'.
func (m *Manager) mirrorFills(ctx context.Context, disk *hv.Disk) bool {
	if disk.Discard == "unmap" {
		return false
	}
	about, err := m.ports.HV.About(ctx)
	return err != nil || !about.Libvirt.Before(hv.Version{Major: 9, Minor: 1})
}

// immovable says why a disk cannot be moved at all, "" if it can.
func immovable(d *hv.Disk) string {
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

// Why a disk gets no overlay that may be mirrored. libvirt refuses one where another guest may have
// the disk open as well, or where the guest does not write to it. We do where a full overlay would
// not pause the guest but be an I/O error of it, or, with the policy ignore, a write that is lost
// in silence.
const (
	notShareable = "is <shareable/>"
	notReadOnly  = "is <readonly/>"
	notPaused    = "has another error_policy than stop or enospace"
)

// mirrorable reports whether a disk that cannot have an overlay for this reason can be mirrored.
func mirrorable(reason string) bool {
	return slices.Contains([]string{notShareable, notReadOnly, notPaused, notPausedByQuota}, reason)
}

// onlyMirrored refuses what a mirror does not do of a disk that nothing else moves while its
// instance runs: which says that, and what to do.
func onlyMirrored(s *steps.Spec, which string) *api.Error {
	return unsupported(s, "disk %s of instance %s %s, so it can only be mirrored while the instance runs, which %s",
		s.Target, s.InstanceName, s.OnlyMirrored, which)
}

// notOverlayable says why no overlay is put on a disk that could be moved otherwise, "" if one
// is.
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
	case !slices.Contains([]string{"", pausedByAnyError, "enospace"}, d.ErrorPolicy): // none is enospace
		return notPaused
	}
	return ""
}

// notEncryptable says why a LUKS container can have no overlay, which is encrypted by its
// passphrase, "" if it can. It notes how much of the container the guest sees.
func (m *Manager) notEncryptable(ctx context.Context, s *steps.Spec) (reason string, err error) {
	if err := m.ports.Images.CheckSecret(ctx, s.SrcImage()); err != nil {
		if errors.Is(err, hv.ErrUnavailable) {
			return "", request.NoHypervisor(err)
		}
		return fmt.Sprintf("is encrypted by QEMU (LUKS), and so has to be what its guest writes while it moves, for which there is no passphrase: %v", err), nil
	}
	s.GuestBytes, err = m.ports.Images.PayloadBytes(ctx, s.SrcImage())
	if api.CodeOf(err) == api.CodeUnsupportedDisk {
		return fmt.Sprintf("is encrypted by QEMU (LUKS), and nobody can tell how large its overlay has to be: %v", err), nil
	}
	return "", err
}

// checkMethod holds the caller to the method that was asked for. A mirror that was
// asked for of an instance that is stopped, or of a volume without one, is made
// offline: there is no QEMU that could mirror, and no guest to spare.
func checkMethod(s *steps.Spec, t *api.MigrationTarget) error {
	switch {
	case t.Method == steps.MethodOverlay && s.Attached() && s.Method != steps.MethodOverlay:
		return unsupported(s, "there can be no overlay on disk %s of instance %s; use --method auto", s.Target, s.InstanceName)
	case s.Method == steps.MethodMirror && t.ExternalCopy && t.Method == steps.MethodMirror:
		return api.Errorf(api.CodeInvalidArgument, "an external copy needs a frozen source, which method mirror does not make; leave out one of the two")
	case s.Method == steps.MethodMirror && t.ExternalCopy:
		return onlyMirrored(s, "makes no frozen source for an external copy; stop the instance and run this again")
	}
	return nil
}

func unsupported(s *steps.Spec, format string, args ...any) *api.Error {
	return api.Errorf(api.CodeUnsupportedDisk, "cannot migrate volume %s: %s", s.VolumeName, fmt.Sprintf(format, args...))
}
